"""What stages do with Arrow batches, without Spark: forms of functions, source times, keep, alternates, counting."""

import datetime as dt
import pickle
from dataclasses import replace
from typing import ClassVar

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from penstock.spark.observe.task_measures import TaskMeasures
from penstock.spark.query.function_shipping import PackedFunctions
from penstock.spark.query.sampling import SAMPLE, WEIGHT, with_sample
from penstock.spark.query.shuffle_messages import MESSAGES, Channel
from penstock.spark.query.stage_runner import (
    Input,
    Output,
    PlainResults,
    Shedder,
    StageProgram,
    StageTask,
    Step,
)
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


SAMPLED = pa.schema([*SCHEMA, *((name, pa.float64()) for name in SAMPLE)])


def a_program(*functions, alternates=("default",), default=0, score=None, keep_by=(), own=()):
    """source -> step -> out, and source -> tap; `own` is the step's keep_by."""
    outputs = (
        Output(stream="source->step", target="step", shedder=Shedder(subject="source->step")),
        Output(
            stream="source->tap",
            target="tap",
            shedder=Shedder(subject="source->tap"),
            leaves=True,
            to_sink=True,
        ),
    )
    out = Output(
        stream="step->out", target="out", shedder=Shedder(subject="step->out"), leaves=True, to_sink=True
    )
    step = Step(
        operator="step",
        takes="arrow",
        alternates=alternates,
        functions=tuple(range(len(functions))),
        default=default,
        schema=SAMPLED,
        outputs=(out,),
        keep_by=own,
        score=None if score is None else len(functions),
    )
    entry = Input(
        channel=None, schema=SCHEMA, outputs=outputs, source=Shedder(subject="source"), keep_by=keep_by
    )
    return StageProgram(
        name="stage",
        inputs=(entry,),
        steps=(step,),
        channels={},
        results=Names(),
        functions=PackedFunctions.of([*functions, score]),
    )


class Names:
    """Results that keep targets and rows apart."""

    def emit(self, leaving):
        return leaving


def run(program, batch, controls=None):
    measures = TaskMeasures(program.name)
    out: dict[str, list[int]] = {}
    for target, rows in StageTask(program, controls or {}, measures).rows(program.inputs[0], batch):
        out.setdefault(target, []).extend(rows.column("n").to_pylist())
    return out, measures.record()


def task_of(program, controls):
    measures = TaskMeasures(program.name)
    return StageTask(program, controls, measures), measures


def rounded(batch):
    return batch.set_column(0, "n", pc.multiply(pc.divide(batch.column("n"), 2), 2))


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

    @pytest.mark.parametrize(("share", "rows"), [(1.0, (1000, 1000)), (0.2, (120, 280))])
    @pytest.mark.parametrize("active", ["exact", "rounded"])
    def test_a_sample_tells_what_an_alternate_is_worth_and_costs(self, active, share, rows):
        program = a_program(drop_time, rounded, alternates=("exact", "rounded"))
        out, record = run(program, a_batch(1000), {"alternate:step": active, "audit": share})
        wanted = [n // 2 * 2 for n in range(1000)] if active == "rounded" else list(range(1000))
        assert out["out"] == wanted, "results are those of the active alternate"
        steps = {o.alternate: o for o in record.operators if o.operator == "step"}
        assert steps[active].rows_in == 1000
        assert rows[0] <= steps["rounded"].compared <= rows[1]
        assert steps["rounded"].agreed / steps["rounded"].compared == pytest.approx(0.5, abs=0.1)
        other = steps["exact" if active == "rounded" else "rounded"]
        assert (other.rows_in, other.calls) == (0, 0), "an audit is no work done"
        assert rows[0] <= other.probe_rows <= rows[1]
        assert other.probe_s > 0

    def test_without_a_share_nothing_is_audited(self):
        program = a_program(drop_time, rounded, alternates=("exact", "rounded"))
        _, record = run(program, a_batch(1000), {"alternate:step": "rounded"})
        assert [(o.alternate, o.compared) for o in record.operators if o.operator == "step"] == [
            ("rounded", 0)
        ]

    def test_the_user_says_what_an_output_is_worth(self):
        def closeness(best, output):
            gaps = pc.subtract(best.column("n"), output.column("n")).to_pylist()
            return 1 - sum(gaps) / len(gaps)

        program = a_program(drop_time, rounded, alternates=("exact", "rounded"), score=closeness)
        _, record = run(program, a_batch(1000), {"audit": 1.0})
        step = {o.alternate: o for o in record.operators if o.operator == "step"}["rounded"]
        assert (step.compared, step.agreed) == (1000, pytest.approx(500))

    def test_alternates_are_audited_in_turn(self):
        program = a_program(drop_time, rounded, negate, alternates=("exact", "rounded", "negative"))
        task, measures = task_of(program, {"audit": 1.0})
        for _ in range(2):
            list(task.rows(program.inputs[0], a_batch(100)))
        found = {o.alternate: o for o in measures.record().operators if o.operator == "step"}
        assert {name: found[name].compared for name in ("rounded", "negative")} == {
            "rounded": 100,
            "negative": 100,
        }
        assert found["negative"].agreed == 1, "only 0 is its own negative"

    @pytest.mark.parametrize(("broken", "active", "compared"), [(0, "plain", 0), (1, "best", 10)])
    def test_an_audit_that_fails_fails_nothing(self, broken, active, compared):
        def fails(batch):
            raise KeyError("price")

        functions = [drop_time, drop_time]
        functions[broken] = fails
        program = a_program(*functions, alternates=("best", "plain"))
        out, record = run(program, a_batch(10), {"alternate:step": active, "audit": 1.0})
        assert out["out"] == list(range(10))
        assert sum(o.compared for o in record.operators) == compared
        assert sum(o.agreed for o in record.operators) == 0, "what fails is worth nothing"

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

    def test_what_is_for_a_later_stage_passes_unopened(self):
        program = a_program(drop_time)
        mine = Channel(number=5, schema=SAMPLED, buckets=24).pack(with_sample(a_batch(3)))
        later = Channel(number=6, schema=SCHEMA, buckets=24).pack(a_batch(4))
        entry = Input(channel=5, schema=SAMPLED, outputs=program.inputs[0].outputs)
        stage = replace(program, inputs=(entry,), results=PlainResults(schema=SCHEMA))
        both = pa.concat_batches([later, mine])
        results, passed = [], []
        for batch in stage.run([both]):
            (passed if batch.schema == MESSAGES else results).append(batch)
        assert [b.num_rows for b in results] == [3, 3]
        assert pa.concat_batches(passed).equals(later)


def kept_by(program, controls, batch, column="n"):
    """What reaches `out`, with the weights it has there."""
    task, _ = task_of(program, controls)
    rows = [rows for target, rows in task.rows(program.inputs[0], batch) if target == "out"]
    return (
        {} if not rows else dict(zip(*(rows[0].column(c).to_pylist() for c in (column, WEIGHT)), strict=True))
    )


class TestOneHash:
    """A record that is kept twice is kept with the product, whatever functions did to it in between."""

    CONTROLS: ClassVar = {"keep:source": 0.6, "keep:step->out": 0.5}

    @pytest.mark.parametrize(
        "function", [drop_time, negate, lambda b: b, lambda b: b.filter(pc.field("n") >= 0)]
    )
    @pytest.mark.parametrize("keep_by", [(), ("n",)])
    def test_two_shedders_keep_the_product(self, function, keep_by):
        program, batch = a_program(function, keep_by=keep_by), a_batch(20_000)
        both = kept_by(program, self.CONTROLS, batch)
        once = kept_by(program, {"keep:source": 0.3}, batch)
        assert both.keys() == once.keys(), "two shares are their product, record by record"
        assert both.keys() < kept_by(program, {"keep:source": 0.6}, batch).keys()
        assert list(both.values()) == pytest.approx([1 / 0.3] * len(both))
        assert len(both) / 20_000 == pytest.approx(0.3, abs=0.02)

    def test_a_step_that_names_columns_of_its_own_starts_a_new_draw(self):
        def keyed(batch):
            return batch.set_column(0, "n", pc.add(batch.column("n"), 1_000_000))

        batch = a_batch(20_000)
        own, inherited = (
            kept_by(a_program(keyed, keep_by=("n",), own=own), self.CONTROLS, batch) for own in (("n",), ())
        )
        assert len(own) / 20_000 == pytest.approx(0.3, abs=0.02)
        assert list(own.values()) == pytest.approx([1 / 0.3] * len(own))
        assert own.keys() != inherited.keys()
        same = kept_by(a_program(drop_time, keep_by=("n",), own=("n",)), self.CONTROLS, batch)
        assert same == kept_by(a_program(drop_time, keep_by=("n",)), self.CONTROLS, batch)

    def test_new_records_are_drawn_independently_of_those_they_were_made_from(self):
        def rebuilt(batch):
            """The same records but for one, as new ones: nobody can tell which came from which."""
            return batch.select(["n", "name"]).slice(1)

        kept = kept_by(a_program(rebuilt, keep_by=("n",)), self.CONTROLS, a_batch(20_000))
        assert len(kept) / 20_000 == pytest.approx(0.3, abs=0.02)
        assert list(kept.values()) == pytest.approx([1 / 0.3] * len(kept))

    def test_nothing_is_hashed_while_nothing_is_dropped(self):
        program = a_program(drop_time)
        task, _ = task_of(program, {"keep:source": 1.0})
        rows = dict(task.rows(program.inputs[0], a_batch(5)))["out"]
        assert [rows.column(name).null_count for name in SAMPLE] == [5, 5]

    def test_arrow_batch_sizes_change_nothing(self):
        def matters(batch):
            return np.where(batch.column("n").to_numpy() % 10 == 0, 0.95, 0.2)

        program = a_program(drop_time, matters)
        shedder = Shedder(subject="source", utility=1)
        program = replace(program, inputs=(replace(program.inputs[0], source=shedder),))
        controls = {"keep:source": 0.3, "cutoff:source": 0.2, "keep:step->out": 0.7}
        whole = kept_by(program, controls, a_batch(5000))
        parts: dict[int, float] = {}
        for start in range(0, 5000, 37):
            parts |= kept_by(program, controls, a_batch(min(37, 5000 - start), start))
        assert parts == whole
        assert {round(w * 0.7, 6) for n, w in whole.items() if n % 10 == 0} == {1.0}
        assert {round(w * 0.7, 6) for n, w in whole.items() if n % 10} == {4.0}
