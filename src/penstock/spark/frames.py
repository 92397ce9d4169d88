"""Shedding and switching on ordinary DataFrames: `penstock.shed` and `penstock.alternates`.

What passes, and which function runs, is decided while the query runs (`penstock.attach`). Without anybody who
decides, and on batch DataFrames, everything is kept and the first alternate runs. The controls are the same for all
tasks of a micro-batch, and a record is kept or dropped by its hash alone (`query.sampling`), so a batch that runs
again gives the same rows.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_args

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sql
from pyspark.sql.types import DoubleType, NumericType, StructField, StructType

from penstock.dataflow.graph import Takes
from penstock.errors import UserError
from penstock.spark.internals.control_resumption import resume_controls
from penstock.spark.internals.task_controls import current_controls
from penstock.spark.observe.machine_load import stalled_s
from penstock.spark.observe.task_measures import task_measures
from penstock.spark.query.audit import Auditor, audited_share, runner
from penstock.spark.query.frame_points import AlternatesPoint, ShedPoint, points_of, register
from penstock.spark.query.function_shipping import PackedFunctions
from penstock.spark.query.sample_columns import merged_samples
from penstock.spark.query.sampling import (
    HASH,
    SAMPLE,
    WEIGHT,
    cutoff_control,
    drawn,
    hashed,
    number,
    sample_of,
    sampling_is_on,
    share_to_keep,
    useless,
    with_sample,
)
from penstock.spark.query.stage_runner import active_alternate
from penstock.spark.query.user_functions import arrow_schema, call, columns_of

arrow_udf: Any = sql.arrow_udf  # type: ignore[attr-defined]  # the stubs of PySpark lack it

_KEPT, _UTILITY = "_penstock_kept", "_penstock_utility"
_RESULT = "hash double, weight double"


class FrameError(UserError, ValueError):
    """A DataFrame that cannot be shed or switched as asked."""


def shed(
    frame: DataFrame,
    keep_by: str | Sequence[str] = (),
    *,
    name: str,
    utility: Column | str | Callable[[pa.RecordBatch], Any] | None = None,
    weights: bool = True,
) -> DataFrame:
    """The DataFrame, of which a share passes that is decided while the query runs; all of it until then.

    `keep_by` names the columns whose hash decides: records with equal values are kept or dropped together, and
    streams that are shed by the same key keep the same keys, so joins keep their matches. Without it, what decided in
    an earlier `shed` decides here too, else the whole record. With `utility` (0..1 per record: a column, an
    expression, or a function of an Arrow batch) the least useful go first.

    With `weights` the columns `_penstock_hash` and `_penstock_weight` come along. The weight is 1 / the probability
    with which all sheds on the way kept the record; `penstock.estimate` and later sheds need them. Drop them before a
    sink that wants exact columns. Only the columns that decide travel to Python and back: put it before the most
    expensive part of the query.
    """
    place = _place(frame, "shed", name)
    frame = merged_samples(frame) if any(frame.columns.count(c) > 1 for c in SAMPLE) else frame
    wanted = (keep_by,) if isinstance(keep_by, str) else tuple(keep_by or ())
    for column in wanted:
        _known(frame, column, place)
    if name in {p.name for p in points_of(frame) if isinstance(p, ShedPoint)}:
        raise FrameError(f"{place}: there is one of this name before it, and a share would be applied twice")
    carried = HASH in frame.columns and WEIGHT in frame.columns
    before = (
        next((p.keep_by for p in points_of(frame) if isinstance(p, ShedPoint)), None) if carried else None
    )
    inherits = carried and (not wanted or wanted == before)
    # What decides where no hash came along: batches in which nothing was dropped.
    columns = wanted or tuple(c for c in before or () if c in frame.columns)
    columns = columns or tuple(c for c in frame.columns if c not in SAMPLE)
    given = [sql.col(f"`{column}`") for column in columns]
    names = [*columns]
    packed = None
    if isinstance(utility, Column | str):
        given.append(_number(frame, utility, place))
        names.append(_UTILITY)
    elif utility is not None:
        if not callable(utility):
            kind = type(utility).__name__
            raise FrameError(
                f"{place}: the utility must be a column, an expression or a function, not {kind}"
            )
        packed = PackedFunctions.of([utility])
        more = [c for c in frame.columns if c not in SAMPLE and c not in columns]
        given += [sql.col(f"`{column}`") for column in more]
        names += more
    if carried:
        given += [sql.col(column) for column in SAMPLE]
        names += SAMPLE
    point = ShedPoint(name=name, keep_by=wanted or before or (), has_utility=utility is not None)
    host, measures = register(frame.sparkSession, "shed", point)
    if frame.isStreaming:
        resume_controls(frame.sparkSession)
    task = _Shed(
        name=name,
        host=host,
        columns=tuple(names),
        decide=columns,
        inherits=inherits,
        utility=packed,
        utility_column=_UTILITY in names,
        accumulator=measures.accumulator,
    )
    # Not deterministic: Spark would else run it twice, for the filter and for the columns.
    passed = arrow_udf(task.function(), returnType=_RESULT).asNondeterministic()
    frame = frame.withColumn(_KEPT, passed(*given)).where(sql.col(_KEPT).isNotNull())
    if weights:
        frame = frame.withColumns({HASH: sql.col(f"{_KEPT}.hash"), WEIGHT: sql.col(f"{_KEPT}.weight")})
    else:
        frame = frame.drop(*SAMPLE)
    return frame.drop(_KEPT)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shed:
    """What a task does with the columns of an Arrow batch that decide."""

    name: str
    host: str
    columns: tuple[str, ...]
    decide: tuple[str, ...]
    inherits: bool
    utility: PackedFunctions | None
    utility_column: bool
    accumulator: Any

    def function(self) -> Callable[..., pa.Array]:
        """The function for Spark, under the name that the plan has."""

        def run(*arrays: pa.Array) -> pa.Array:
            return self.passed(pa.RecordBatch.from_arrays(list(arrays), names=list(self.columns)))

        run.__name__ = self.host
        return run

    def passed(self, batch: pa.RecordBatch) -> pa.Array:
        """Hash and weight of each record; null for those that are dropped."""
        began, stalled = time.perf_counter(), stalled_s()
        controls, measures = current_controls(), task_measures(self.host, self.accumulator)
        tally = measures.tally(self.name, "default")
        share = share_to_keep(self.name, controls)
        rows = with_sample(batch.select([c for c in self.columns if c in (*self.decide, *SAMPLE)]))
        if sampling_is_on(controls):
            rows = hashed(rows, () if self.inherits else self.decide)
        chance: Any = share
        if (self.utility is not None or self.utility_column) and (share < 1 or not tally.calls):
            try:
                worthless = useless(self._utility, batch)
            except Exception as error:
                error.add_note(f"in the utility of shed '{self.name}'")
                raise
            measures.useless(self.name, worthless)
            cutoff = number(controls.get(cutoff_control(self.name)), 0.0)
            chance = np.minimum(1.0, cutoff / worthless) if 0 < share < 1 and cutoff > 0 else share
        hashes, weights = sample_of(rows)
        mask, weights = drawn(hashes, weights, chance)
        found = [pa.array(hashes, from_pandas=True), pa.array(weights)]
        out = pa.StructArray.from_arrays(found, names=["hash", "weight"], mask=pa.array(~mask))
        busy_s = time.perf_counter() - began
        tally.add(batch.num_rows, int(mask.sum()), 0, 0, busy_s, 0.0, stalled_s() - stalled)
        return out

    def _utility(self, batch: pa.RecordBatch) -> Any:
        if self.utility is not None:
            return self.utility.unpack()[0](batch)
        return batch.column(_UTILITY).fill_null(0.0).to_numpy(zero_copy_only=False)


def alternates(
    frame: DataFrame,
    functions: Mapping[str, Callable[..., Any]],
    *,
    name: str,
    schema: str | StructType,
    values: Mapping[str, float] | None = None,
    takes: Takes = "arrow",
    score: Callable[[Any, Any], float] | None = None,
) -> DataFrame:
    """What one of several functions makes of the DataFrame; which one is decided while the query runs.

    The first runs until then. `takes` says what a function gets: Arrow batches, pandas frames, or one record (a dict)
    at a time; `schema` has the columns that all of them return. `values` says what each is worth beside the best (1).
    While the query is attached, a small share of the records also goes through the others, which measures their cost
    and value: the share of rows equal to the best one's, or `score(best_output, output)` in 0..1.

    The columns of an earlier `shed` come along by themselves. A watermark on a column that the functions return stays.
    """
    place = _place(frame, "alternates", name)
    if name in {p.name for p in points_of(frame) if isinstance(p, AlternatesPoint)}:
        raise FrameError(f"{place}: there are some of this name before them")
    if not functions:
        raise FrameError(f"{place}: there is no function")
    if takes not in get_args(Takes):
        raise FrameError(f"{place}: takes must be one of {', '.join(get_args(Takes))}, not '{takes}'")
    for each, function in functions.items():
        if not callable(function):
            raise FrameError(f"{place}: '{each}' is no function but {type(function).__name__}")
    unknown = [each for each in values or () if each not in functions]
    if unknown:
        raise FrameError(
            f"{place}: '{unknown[0]}' has a value and no function; there are {', '.join(functions)}"
        )
    worth = {each: float((values or {}).get(each, 1.0)) for each in functions}
    wrong = [each for each, value in worth.items() if not 0 <= value <= 1]
    if wrong:
        raise FrameError(f"{place}: the value of '{wrong[0]}' must lie in 0..1, not {worth[wrong[0]]:g}")
    frame = merged_samples(frame) if any(frame.columns.count(c) > 1 for c in SAMPLE) else frame
    try:
        columns = schema if isinstance(schema, StructType) else columns_of(schema)
    except Exception as error:  # of Spark's parser, with a stack of its own
        raise FrameError(f"{place}: '{schema}' is no schema such as 'id long, score double'") from error
    had = {field.name: field for field in frame.schema.fields}
    fields = [_with_metadata(field, had) for field in columns.fields]
    fields += [StructField(c, DoubleType()) for c in SAMPLE if c in had and c not in columns.names]
    columns = StructType(fields)
    point = AlternatesPoint(name=name, values=worth)
    host, measures = register(frame.sparkSession, "alternates", point)
    if frame.isStreaming:
        resume_controls(frame.sparkSession)
    zone = frame.sparkSession.conf.get("spark.sql.session.timeZone") or "UTC"
    task = _Alternates(
        name=name,
        host=host,
        alternates=tuple(functions),
        best=list(functions).index(point.best),
        takes=takes,
        schema=arrow_schema(columns, zone),
        functions=PackedFunctions.of([*functions.values(), score]),
        accumulator=measures.accumulator,
    )
    return frame.mapInArrow(task.function(), columns)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Alternates:
    """What a task does with whole records."""

    name: str
    host: str
    alternates: tuple[str, ...]
    best: int
    takes: Takes
    schema: pa.Schema
    functions: PackedFunctions
    """Those of the alternates, then the score."""
    accumulator: Any

    def function(self) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
        """The function for Spark, under the name that the plan has."""

        def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            return self.run(batches)

        run.__name__ = self.host
        return run

    def run(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """What the active alternate makes of the batches of a task."""
        controls, measures = current_controls(), task_measures(self.host, self.accumulator)
        *functions, score = self.functions.unpack()
        which = active_alternate(self.name, self.alternates, 0, controls)
        tally, run = (
            measures.tally(self.name, self.alternates[which]),
            runner(functions, self.takes, self.schema),
        )
        auditor = Auditor(
            self.name,
            self.alternates,
            best=self.best,
            active=which,
            share=audited_share(controls),
            takes=self.takes,
            score=score,
            turn=measures.partition,
        )
        for batch in batches:
            began, stalled = time.perf_counter(), stalled_s()
            try:
                rows, m2 = call(functions[which], self.takes, batch, self.schema)
            except Exception as error:
                error.add_note(f"in alternates '{self.name}', '{self.alternates[which]}'")
                raise
            busy_s = time.perf_counter() - began
            size_in, size_out = batch.nbytes, rows.nbytes
            tally.add(batch.num_rows, rows.num_rows, size_in, size_out, busy_s, m2, stalled_s() - stalled)
            auditor.audit(auditor.sample(batch), run, measures, tally.busy_s)
            yield rows


def _place(frame: Any, kind: str, name: str) -> str:
    """How messages call it; refuses what has no name and what is no DataFrame of a session in this process."""
    if not isinstance(name, str) or not name:
        raise FrameError(f"{kind}: the name must be a text, not {name!r}")
    if not isinstance(frame, DataFrame):
        raise FrameError(
            f"{kind} '{name}': the first argument must be a DataFrame, not {type(frame).__name__}"
        )
    if type(frame).__module__.startswith("pyspark.sql.connect"):
        raise FrameError(f"{kind} '{name}': a Spark Connect session has no driver in this process")
    return f"{kind} '{name}'"


def _number(frame: DataFrame, utility: Column | str, place: str) -> Column:
    """The utility as a column of doubles."""
    column = _known(frame, utility, place) if isinstance(utility, str) else utility
    kind = frame.select(column).schema.fields[0].dataType
    if not isinstance(kind, NumericType):
        raise FrameError(f"{place}: the utility must be a number in 0..1, not {kind.simpleString()}")
    return column.cast("double")


def _known(frame: DataFrame, column: str, place: str) -> Column:
    if column not in frame.columns:
        raise FrameError(f"{place}: there is no column '{column}'; there are {', '.join(frame.columns)}")
    return sql.col(f"`{column}`")


def _with_metadata(column: StructField, had: Mapping[str, StructField]) -> StructField:
    """The column with what Spark knows of it, such as a watermark, if it came in with the same type."""
    old = had.get(column.name)
    if old is None or old.dataType != column.dataType or column.metadata:
        return column
    return StructField(column.name, column.dataType, column.nullable, old.metadata)
