"""What hosts do with Arrow batches, without Spark: forms of functions, source times, keep, alternates, counting."""

import datetime as dt
import pickle

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from penstock.spark.observe.task_measures import TaskMeasures
from penstock.spark.query.function_shipping import Shipment
from penstock.spark.query.shuffle_messages import MESSAGES, Port
from penstock.spark.query.stage_runner import Door, Lane, Plain, Program, Step, Task
from penstock.spark.query.user_functions import ResultError, call
from tests.spark_offline.batches import SCHEMA, START_US, a_batch

UTC = dt.UTC


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
