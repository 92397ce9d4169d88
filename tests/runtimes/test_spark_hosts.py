"""What hosts do with Arrow batches, without Spark: forms of functions, source times, keep, alternates, counting."""

import datetime as dt
import pickle

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from penstock.dataflow import flow
from penstock.dataflow.connectors import discard, rate
from penstock.runtimes.spark.forms import ResultError, call
from penstock.runtimes.spark.host import Door, Lane, Plain, Program, Step, Task
from penstock.runtimes.spark.keyed import KeyedProgram, StateError
from penstock.runtimes.spark.measures import Measures, SourceTimes, TaskMeasures
from penstock.runtimes.spark.messages import MESSAGES, Port, bucket_count, bucket_labels, spark_hash, unpack
from penstock.runtimes.spark.sections import Section
from penstock.runtimes.spark.shipping import Shipment

UTC = dt.UTC
SCHEMA = pa.schema([("n", pa.int64()), ("name", pa.string()), ("source_time", pa.timestamp("us", tz="UTC"))])
START_US = 1_700_000_000_000_000


def a_batch(rows: int = 6, start: int = 0) -> pa.RecordBatch:
    n = np.arange(start, start + rows)
    times = pa.array(START_US + n * 1000).view(pa.timestamp("us", tz="UTC"))
    return pa.RecordBatch.from_arrays([pa.array(n), pa.array([f"x{i % 3}" for i in n]), times], schema=SCHEMA)


def times_us(batch: pa.RecordBatch) -> list[int]:
    return batch.column("source_time").view(pa.int64()).to_pylist()


def drop_time(batch):
    return batch.select(["n", "name"])


def evens(batch):
    return drop_time(batch.filter(pc.equal(pc.bit_wise_and(batch.column("n"), 1), 0)))


def keep_time(batch):
    return batch.take(pa.array([5, 0]))


class TestForms:
    def test_as_many_rows_keep_their_times(self):
        out, _ = call(drop_time, "arrow", a_batch(), SCHEMA)
        assert times_us(out) == times_us(a_batch())
        assert out.schema == SCHEMA

    def test_fewer_rows_without_times_get_the_latest(self):
        out, _ = call(evens, "arrow", a_batch(), SCHEMA)
        assert out.column("n").to_pylist() == [0, 2, 4]
        assert times_us(out) == [START_US + 5000] * 3

    def test_a_function_that_keeps_the_column_keeps_exact_times(self):
        out, _ = call(keep_time, "arrow", a_batch(), SCHEMA)
        assert times_us(out) == [START_US + 5000, START_US]

    def test_pandas(self):
        out, _ = call(lambda f: f[f["n"] > 3], "pandas", a_batch(), SCHEMA)
        assert out.column("n").to_pylist() == [4, 5]
        assert times_us(out) == [START_US + 4000, START_US + 5000]

    def test_pandas_casts_to_the_declared_types(self):
        schema = pa.schema([("n", pa.int32()), SCHEMA.field("source_time")])
        out, _ = call(lambda f: pd.DataFrame({"n": f["n"].astype(float)}), "pandas", a_batch(2), schema)
        assert out.schema == schema

    def test_records_have_the_exact_time_of_the_record_they_came_from(self):
        def spread(record):
            assert record["source_time"] == dt.datetime.fromtimestamp(
                (START_US + record["n"] * 1000) / 1e6, UTC
            )
            if record["n"] == 1:
                return None
            return [{"n": record["n"], "name": "a"}] * record["n"] if record["n"] > 2 else record

        out, m2 = call(spread, "record", a_batch(4), SCHEMA)
        assert out.column("n").to_pylist() == [0, 2, 3, 3, 3]
        assert times_us(out) == [START_US + 1000 * n for n in (0, 2, 3, 3, 3)]
        assert m2 > 0

    def test_none_is_no_rows(self):
        assert call(lambda _: None, "arrow", a_batch(), SCHEMA)[0].num_rows == 0

    def test_tables_of_many_chunks(self):
        out, _ = call(lambda b: pa.Table.from_batches([b, b]), "arrow", a_batch(3), SCHEMA)
        assert out.column("n").to_pylist() == [0, 1, 2, 0, 1, 2]

    @pytest.mark.parametrize(
        ("function", "takes", "message"),
        [
            (lambda b: b.select(["n"]), "arrow", "column 'name' is missing"),
            (lambda f: f[["n"]], "pandas", "column 'name' is missing"),
            (lambda r: 3, "record", "not int"),
            (lambda b: [1], "arrow", "not list"),
        ],
    )
    def test_wrong_results_are_told(self, function, takes, message):
        with pytest.raises(ResultError, match=message):
            call(function, takes, a_batch(), SCHEMA)


def a_program(*functions, alternates=("default",), default=0):
    """source -> step -> out, and source -> tap."""
    lanes = (
        Lane(stream="source->step", target="step", subject="source->step", salt=1),
        Lane(stream="source->tap", target="tap", subject="source->tap", salt=1, leaves=True, to_sink=True),
    )
    out = Lane(stream="step->out", target="out", subject="step->out", salt=2, leaves=True, to_sink=True)
    step = Step(
        operator="step",
        takes="arrow",
        alternates=alternates,
        functions=tuple(range(len(functions))),
        default=default,
        schema=SCHEMA,
        leaving=(out,),
    )
    source = Lane(stream="source", target="source", subject="source", salt=0)
    return Program(
        name="host",
        doors=(Door(port=None, schema=SCHEMA, leaving=lanes, source=source),),
        steps=(step,),
        ports={},
        exit=Names(),
        shipment=Shipment.of(functions),
    )


class Names:
    """An exit that keeps targets and rows apart."""

    def emit(self, leaving):
        return leaving


def run(program, batch, controls=None):
    measures = TaskMeasures(program.name)
    out: dict[str, list[int]] = {}
    for target, rows in Task(program, controls or {}, measures).rows(program.doors[0], batch):
        out.setdefault(target, []).extend(rows.column("n").to_pylist())
    return out, measures.record()


def negate(batch):
    return batch.set_column(0, "n", pc.negate(batch.column("n")))


class TestPrograms:
    def test_branches_and_counts(self):
        out, record = run(a_program(evens), a_batch())
        assert out == {"out": [0, 2, 4], "tap": [0, 1, 2, 3, 4, 5]}
        step = {o.operator: o for o in record.operators}["step"]
        assert (step.rows_in, step.rows_out, step.calls) == (6, 3, 1)
        assert step.busy_s > 0
        assert step.mean_s == pytest.approx(step.busy_s / 6)
        assert {s.sink: s.rows for s in record.sinks} == {"out": 3, "tap": 6}

    def test_the_control_chooses_the_alternate(self):
        program = a_program(drop_time, negate, alternates=("plain", "negative"))
        assert run(program, a_batch(2))[0]["out"] == [0, 1]
        assert run(program, a_batch(2), {"alternate:step": "negative"})[0]["out"] == [0, -1]
        assert run(program, a_batch(2), {"alternate:step": "unknown"})[0]["out"] == [0, 1]
        record = run(program, a_batch(2), {"alternate:step": "negative"})[1]
        assert [o.alternate for o in record.operators if o.operator == "step"] == ["negative"]

    @pytest.mark.parametrize(
        ("share", "rows", "agreement"),
        [(1.0, (1000, 1000), 0.5), (0.2, (120, 280), 0.5), (0.0, (0, 0), None)],
    )
    def test_a_sample_through_the_best_alternate_tells_what_another_is_worth(self, share, rows, agreement):
        def rounded(batch):
            return batch.set_column(0, "n", pc.multiply(pc.divide(batch.column("n"), 2), 2))

        program = a_program(drop_time, rounded, alternates=("exact", "rounded"))
        controls = {"alternate:step": "rounded", "audit": share}
        out, record = run(program, a_batch(1000), controls)
        assert out["out"] == [n // 2 * 2 for n in range(1000)], "results are those of the active alternate"
        step = {o.operator: o for o in record.operators}["step"]
        assert (step.alternate, step.rows_in) == ("rounded", 1000)
        assert rows[0] <= step.compared <= rows[1]
        if agreement is not None:
            assert step.agreed / step.compared == pytest.approx(agreement, abs=0.1)

    def test_an_audit_that_fails_fails_nothing(self):
        def broken(batch):
            raise KeyError("price")

        program = a_program(broken, drop_time, alternates=("broken", "plain"))
        out, record = run(program, a_batch(10), {"alternate:step": "plain", "audit": 1.0})
        assert out["out"] == list(range(10))
        assert {o.operator: o.compared for o in record.operators}["step"] == 0

    def test_streams_shed_before_their_reader_and_others_do_not(self):
        program = a_program(drop_time)
        out, record = run(program, a_batch(1000), {"keep:source->step": 0.4})
        stream = {s.stream: s for s in record.streams}["source->step"]
        assert stream.rows_offered == 1000
        assert stream.rows_shed == 1000 - len(out["out"])
        assert 300 < len(out["out"]) < 500
        assert len(out["tap"]) == 1000

    def test_sources_shed_first(self):
        out, record = run(a_program(drop_time), a_batch(1000), {"keep:source": 0.4})
        source = {o.operator: o for o in record.operators}["source"]
        assert out["out"] == out["tap"]
        assert (source.rows_in, source.rows_out) == (1000, len(out["tap"]))

    @pytest.mark.parametrize("nonsense", ["0.5", None, float("nan")])
    def test_a_nonsense_share_keeps_everything(self, nonsense):
        assert len(run(a_program(drop_time), a_batch(50), {"keep:source": nonsense})[0]["tap"]) == 50

    def test_an_error_names_the_operator(self):
        def broken(batch):
            raise KeyError("price")

        with pytest.raises(KeyError) as caught:
            run(a_program(broken), a_batch())
        assert "in operator 'step', alternate 'default'" in caught.value.__notes__

    def test_a_program_travels(self):
        again = pickle.loads(pickle.dumps(a_program(evens)))
        assert run(again, a_batch())[0] == run(a_program(evens), a_batch())[0]


SUMS = pa.schema(
    [("name", pa.string()), ("total", pa.int64()), ("source_time", pa.timestamp("us", tz="UTC"))]
)


def sums_of_records(key, rows, state):
    total = sum(r["n"] for r in rows) + (state[0] if state else 0)
    return [{"name": key[0], "total": total}], (total,)


def sums_of_frames(key, rows, state):
    total = int(rows["n"].sum()) + (state[0] if state else 0)
    return pd.DataFrame({"name": [key[0]], "total": [total]}), (np.int64(total),)


def sums_of_batches(key, rows, state):
    total = pc.sum(rows.column("n")).as_py() + (state[0] if state else 0)
    return pa.RecordBatch.from_pydict({"name": [key[0]], "total": [total]}), (total,)


def a_keyed_program(function, takes, **changes):
    given = {
        "name": "sums",
        "operator": "sums",
        "takes": takes,
        "key": ("name",),
        "alternates": ("default",),
        "default": 0,
        "arriving": SCHEMA,
        "schema": SUMS,
        "state": "total long",
        "state_width": 1,
        "buckets": 24,
        "arrives_at": 0,
        "leaves_by": 1,
        "shipment": Shipment.of([function]),
    }
    return KeyedProgram(**given | changes)


def fold(program, batches, stored=None):
    messages = [batch.serialize().to_pybytes() for batch in batches]
    out, state = program.fold(messages, stored, None)
    rows = [] if out is None else pa.ipc.read_record_batch(pa.py_buffer(out), program.schema).to_pylist()
    return sorted(rows, key=str), state


class TestKeyed:
    @pytest.mark.parametrize(
        ("function", "takes"),
        [(sums_of_records, "record"), (sums_of_frames, "pandas"), (sums_of_batches, "arrow")],
    )
    def test_state_goes_from_batch_to_batch(self, function, takes):
        program = a_keyed_program(function, takes)
        first, state = fold(program, [a_batch(3), a_batch(3, 3)])
        assert [(r["name"], r["total"]) for r in first] == [("x0", 3), ("x1", 5), ("x2", 7)]
        assert [int(r["source_time"].timestamp() * 1e6) for r in first] == [
            START_US + 1000 * n for n in (3, 4, 5)
        ]
        second, state = fold(program, [a_batch(1, 6)], state)
        assert [(r["name"], r["total"]) for r in second] == [("x0", 9)]
        assert pickle.loads(state) == (24, "total long", {("x0",): (9,), ("x1",): (5,), ("x2",): (7,)})
        assert all(type(s[0]) is int for s in pickle.loads(state)[2].values())

    def test_rows_of_a_key_come_in_order_of_their_source_time(self):
        def look(key, rows, state):
            return None, ([r["n"] for r in rows],)

        batch = a_batch(9).take(pa.array([8, 3, 1, 0, 7, 6, 2, 5, 4]))
        rows, state = fold(a_keyed_program(look, "record"), [batch])
        assert rows == []
        assert pickle.loads(state)[2] == {("x0",): ([0, 3, 6],), ("x1",): ([1, 4, 7],), ("x2",): ([2, 5, 8],)}

    def test_none_forgets_the_key(self):
        _, state = fold(a_keyed_program(sums_of_records, "record"), [a_batch()])
        forget = a_keyed_program(lambda key, rows, state: (None, None), "record")
        assert fold(forget, [a_batch(1)], state)[1] is not None
        assert fold(forget, [a_batch()], state)[1] is None

    def test_keys_of_several_columns_with_nulls(self):
        schema = pa.schema([("a", pa.int64()), ("b", pa.string()), SCHEMA.field("source_time")])
        rows = [{"a": a, "b": b} for a in (1, None) for b in ("x", None) for _ in range(3)]
        program = a_keyed_program(
            lambda key, rows, state: (None, (len(rows),)), "record", key=("a", "b"), arriving=schema
        )
        _, state = fold(program, [pa.RecordBatch.from_pylist(rows, schema=schema)])
        assert pickle.loads(state)[2] == {
            (1, "x"): (3,),
            (1, None): (3,),
            (None, "x"): (3,),
            (None, None): (3,),
        }

    def test_own_source_times_are_kept(self):
        def oldest(key, rows, state):
            return [{"name": key[0], "total": 0, "source_time": rows[0]["source_time"]}], (0,)

        rows, _ = fold(a_keyed_program(oldest, "record"), [a_batch(6)])
        assert [int(r["source_time"].timestamp() * 1e6) for r in rows] == [
            START_US + 1000 * n for n in range(3)
        ]

    def test_a_changed_state_is_refused(self):
        _, state = fold(a_keyed_program(sums_of_records, "record"), [a_batch()])
        with pytest.raises(StateError, match=r"'total long' in 24 buckets.*'total double'"):
            fold(a_keyed_program(sums_of_records, "record", state="total double"), [a_batch()], state)

    @pytest.mark.parametrize("state", [(1, 2), [1], 1])
    def test_a_wrong_state_is_told(self, state):
        with pytest.raises(ResultError, match="tuple of 1 values"):
            fold(a_keyed_program(lambda k, r, s: (None, state), "record"), [a_batch()])


class TestMessages:
    def test_packing_by_key_loses_nothing_and_keeps_keys_together(self):
        port = Port(number=3, schema=SCHEMA, buckets=24, key=("name",))
        names = [f"k{i % 97}" for i in range(1000)]
        batch = a_batch(1000).set_column(1, "name", pa.array(names))
        out = port.pack(batch, 0)
        assert out.schema == MESSAGES
        assert set(out.column("port").to_pylist()) == {3}
        assert sorted(unpack(out.column("payload"), SCHEMA).column("n").to_pylist()) == list(range(1000))
        buckets: dict[str, set[int]] = {}
        for label, _, message in zip(*out.columns, strict=True):
            for name in unpack([message], SCHEMA).column("name").to_pylist():
                buckets.setdefault(name, set()).add(label.as_py())
        assert all(len(found) == 1 for found in buckets.values())
        assert len({next(iter(found)) for found in buckets.values()}) > 15

    def test_spreading_deals_out_evenly_and_goes_round(self):
        port = Port(number=0, schema=SCHEMA, buckets=24, parts=4)
        out = port.pack(a_batch(1001), 22)
        sizes = [unpack([message], SCHEMA).num_rows for message in out.column("payload")]
        assert sorted(sizes) == [250, 250, 250, 251]
        labels = bucket_labels(24)
        assert out.column("label").to_pylist() == [labels[i] for i in (22, 23, 0, 1)]
        assert port.pack(a_batch(2), 0).num_rows == 2

    def test_what_is_for_a_later_host_passes_unopened(self):
        program = a_program(drop_time)
        mine = Port(number=5, schema=SCHEMA, buckets=24).pack(a_batch(3), 0)
        later = Port(number=6, schema=SCHEMA, buckets=24).pack(a_batch(4), 0)
        door = Door(port=5, schema=SCHEMA, leaving=program.doors[0].leaving)
        host = Program(
            name="h",
            doors=(door,),
            steps=program.steps,
            ports={},
            exit=Plain(schema=SCHEMA),
            shipment=program.shipment,
        )
        both = pa.concat_batches([later, mine])
        results, passed = [], []
        for batch in host.run([both]):
            (passed if batch.schema == MESSAGES else results).append(batch)
        assert [b.num_rows for b in results] == [3, 3]
        assert pa.concat_batches(passed).equals(later)

    @pytest.mark.parametrize("partitions", [1, 2, 3, 4, 6, 8, 12, 24])
    def test_buckets_are_even_over_partitions(self, partitions):
        places = spark_hash(bucket_labels(24)) % partitions
        assert len(set(np.bincount(places, minlength=partitions))) == 1

    def test_labels_are_distinct(self):
        assert len(set(bucket_labels(840).tolist())) == 840

    @pytest.mark.parametrize(("partitions", "size", "count"), [(1, 0, 24), (16, 0, 48), (2, 1e9, 840)])
    def test_bucket_counts(self, partitions, size, count):
        assert bucket_count(partitions, size) == count


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


def step(record):
    return record


class TestSections:
    def build(self):
        f = flow("levels")
        left = f.source("left", rate(10))
        right = f.source("right", rate(10))
        one = left.keyed("one", step, key="value", state="n long", schema="value long")
        two = right.keyed("two", step, key="value", state="n long", schema="value long")
        both = f.union("both", one, two, right.map("plain", step, schema="value long"))
        both.map("spread", step, wiring="spread").sink("out", discard())
        right.sink("raw", discard())
        return f.build()

    def test_every_keyed_operator_has_its_level_and_rows_are_used_where_they_are(self):
        flow_ = self.build()
        sinks = [s for sink in flow_.sinks for s in flow_.upstream(sink.id)]
        section = Section.of(flow_, sinks)
        assert section.shuffles == {"one": 1, "two": 2, "both->spread": 3}
        assert section.runs_at["both"] == {0, 1, 2}
        assert section.runs_at["spread"] == {3}
        assert section.last == 3

    def test_only_what_is_upstream_belongs_to_it(self):
        flow_ = self.build()
        section = Section.of(flow_, [s for s in flow_.streams if s.id == "right->raw"])
        assert set(section.runs_at) == {"right"}
        assert section.last == 0
