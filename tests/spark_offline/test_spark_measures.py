"""What tasks measure and how it is collected, without Spark."""

import pickle

import numpy as np
import pyarrow as pa
import pytest

from penstock.spark.observe.task_measures import Measures, SourceTimes, TaskMeasures
from tests.spark_offline.batches import START_US


def a_record(batch=1, partition=0, *, host="h", run="r", rows=5):
    measures = TaskMeasures(host)
    measures._about |= {"run_id": run, "batch_id": batch, "partition": partition}
    measures.tally("op", "default").add(rows, rows, 0, 0, 0.1)
    return pickle.loads(pickle.dumps(measures))


class TestMeasures:
    def test_a_task_that_runs_twice_counts_once(self):
        measures = Measures()
        measures.receive([a_record(rows=5), a_record(rows=7), a_record(partition=1), None])
        taken = measures.take([1])
        assert [t.operators[0].rows_in for t in taken] == [5, 5]
        assert measures.take([1]) == ()

    def test_a_batch_that_ran_again_after_a_restart_counts_as_its_last_run(self):
        measures = Measures()
        measures.receive([a_record(run="old", rows=1), a_record(run="new", rows=2)])
        assert [t.operators[0].rows_in for t in measures.take([1])] == [2]
        assert measures.waiting() == ()

    def test_what_nobody_takes_makes_room(self):
        measures = Measures(kept_batches=3)
        for batch in range(10):
            measures.receive([a_record(batch=batch)])
        assert measures.waiting() == (7, 8, 9)
        assert measures.dropped_batches == 7

    def test_a_failing_measurement_is_left_out(self):
        measures = TaskMeasures("h")
        measures.operators[("op", "a")] = "nonsense"
        assert pickle.loads(pickle.dumps(measures)) is None

    def test_moments_of_calls_merge_as_if_they_were_one(self):
        rng = np.random.default_rng(1)
        spent = rng.exponential(1e-3, 300)
        measures = TaskMeasures("h")
        for part in np.split(spent, [10, 50, 120]):
            m2 = float(np.sum((part - part.mean()) ** 2))
            measures.tally("op", "a").add(len(part), 0, 0, 0, float(part.sum()), m2)
        service = measures.record().operators[0].service_s
        assert float(service.mean[0]) == pytest.approx(spent.mean())
        assert float(service.variance[0]) == pytest.approx(spent.var(ddof=1))

    def test_latencies_at_the_end_of_a_batch(self):
        rng = np.random.default_rng(2)
        times = START_US + rng.integers(0, 5_000_000, 4000)
        found = SourceTimes()
        for part in np.split(times, [100, 3000]):
            found.add(pa.array(part).view(pa.timestamp("us", tz="UTC")))
        found.add(pa.nulls(3, pa.timestamp("us", tz="UTC")))
        end_s = START_US / 1e6 + 6
        record = found.record("out")
        assert record.rows == 4003
        moments, sketch = record.latencies_s(end_s)
        late = end_s - times / 1e6
        assert float(moments.count[0]) == 4000
        assert float(moments.mean[0]) == pytest.approx(late.mean(), abs=1e-3)
        assert float(moments.variance[0]) == pytest.approx(late.var(ddof=1), rel=1e-3)
        for q in (0.5, 0.95, 0.99):
            assert sketch.quantile(q) == pytest.approx(np.quantile(late, q), rel=0.012)

    def test_times_far_apart_stay_small(self):
        found = SourceTimes()
        for year in (0, 50):
            stamp = pa.array([START_US + year * 365 * 86_400_000_000])
            found.add(stamp.view(pa.timestamp("us", tz="UTC")))
        record = found.record("out")
        assert record.counts.tolist() == [1, 1]

    def test_many_times_travel_as_few(self):
        found = SourceTimes()
        times = START_US + np.arange(400_000) * 9_000  # an hour of them
        found.add(pa.array(times).view(pa.timestamp("us", tz="UTC")))
        end_s = times[-1] / 1e6 + 2
        record = found.record("out")
        assert len(record.counts) < 10_000
        late = end_s - times / 1e6
        moments, sketch = record.latencies_s(end_s)
        assert float(moments.mean[0]) == pytest.approx(late.mean(), rel=1e-3)
        for q in (0.01, 0.5, 0.99):
            assert sketch.quantile(q) == pytest.approx(np.quantile(late, q), rel=0.012)
