"""Where a user let Penstock shed or switch in ordinary DataFrames, and in which running query each such place is.

    frames_of(query) -> tuple[ShedPoint | AlternatesPoint, ...]

is what `penstock.attach` asks. Every point has a `name`, unique within a query, and a `control`: the name under which
`set_controls` steers it, `keep:NAME` (a share, 0..1) or `alternate:NAME` (the name of an alternate). Tasks count
under the same name: `OperatorRecord(operator=NAME, alternate=...)` has rows in and out and the time they took. The
records of all points of an application are in `frame_measures(spark)`, those of one query under its run id.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import Any
from weakref import WeakKeyDictionary

from pyspark import SparkContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from penstock.spark.internals.gateway import compiled, execution, lines
from penstock.spark.observe.task_measures import Measures
from penstock.spark.query.sampling import cutoff_control, keep_control
from penstock.spark.query.stage_runner import alternate_control

_NAMES = """
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.PythonUDF;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;

public Object of(LogicalPlan plan) {
    StringBuilder found = new StringBuilder();
    walk(plan, found);
    return reply(found);
}

private static boolean walk(LogicalPlan plan, StringBuilder found) {
    StringBuilder below = new StringBuilder();
    boolean sheds = false;
    scala.collection.Iterator children = plan.children().iterator();
    while (children.hasNext()) sheds |= walk((LogicalPlan) children.next(), below);
    StringBuilder here = new StringBuilder();
    scala.collection.Iterator expressions = plan.expressions().iterator();
    while (expressions.hasNext()) look((Expression) expressions.next(), sheds, here);
    found.append(here).append(below);
    return sheds || here.indexOf("penstock shed ") >= 0;
}

private static void look(Expression expression, boolean shedsBefore, StringBuilder found) {
    if (expression instanceof PythonUDF) {
        String name = ((PythonUDF) expression).name();
        if (name.startsWith("penstock "))
            found.append(name).append(shedsBefore ? "\\tlater" : "\\tfirst").append("\\n");
    }
    scala.collection.Iterator children = expression.children().iterator();
    while (children.hasNext()) look((Expression) children.next(), shedsBefore, found);
}
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShedPoint:
    """A place where records may be dropped."""

    name: str
    keep_by: tuple[str, ...]
    """Columns whose hash decides; none: what decided upstream, or the whole record."""
    has_utility: bool = False

    @property
    def control(self) -> str:
        """The control with the share to keep."""
        return keep_control(self.name)

    @property
    def cutoff(self) -> str:
        """The control with the cutoff of its utility; see `utility_counts`."""
        return cutoff_control(self.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class AlternatesPoint:
    """A place with several functions that do the same work."""

    name: str
    values: Mapping[str, float]
    """What each alternate is worth, as declared; the first runs until a control says otherwise."""

    @property
    def control(self) -> str:
        """The control with the name of the active alternate."""
        return alternate_control(self.name)

    @property
    def best(self) -> str:
        """The alternate of the highest value, the first such."""
        return max(self.values, key=lambda name: self.values[name])


Point = ShedPoint | AlternatesPoint


@dataclass(slots=True)
class _Application:
    """The points of one Spark application."""

    measures: Measures
    points: dict[str, Point] = field(default_factory=dict)
    numbers: count[int] = field(default_factory=count)


_applications: WeakKeyDictionary[SparkContext, _Application] = WeakKeyDictionary()


def frames_of(query: StreamingQuery) -> tuple[Point, ...]:
    """The points in a running query, from the source on: those in its plan, and those that only its tasks told of
    (inside `foreachBatch`). Of several with one name, which then share a control, the last one made.
    """
    context = SparkContext._active_spark_context  # a process has one application
    application = None if context is None else _applications.get(context)
    if application is None:
        return ()
    plan = [name for name, _ in _names(execution(query).analyzedPlan())]
    seen = application.measures.hosts_of(str(query.runId))
    found = {
        point.name: point
        for host in (*reversed(plan), *sorted(seen))
        if (point := application.points.get(host))
    }
    return tuple(found.values())


def first_sheds(query: StreamingQuery) -> tuple[ShedPoint, ...]:
    """The sheds of a running query before which no other comes; those inside `foreachBatch` if its plan has none."""
    points = [point for point in frames_of(query) if isinstance(point, ShedPoint)]
    context = SparkContext._active_spark_context
    application = None if context is None or not points else _applications.get(context)
    if application is None:
        return ()
    plan = _names(execution(query).analyzedPlan())
    first = {
        application.points[name].name for name, is_first in plan if is_first and name in application.points
    }
    later = {application.points[name].name for name, _ in plan if name in application.points}
    inside = {point.name for point in points} - later if not first & {p.name for p in points} else set()
    return tuple(point for point in points if point.name in first | inside)


def has_points(spark: SparkSession) -> bool:
    """Whether anything in the application may be dropped or replaced."""
    return spark.sparkContext in _applications


def frame_measures(spark: SparkSession) -> Measures:
    """What the tasks of all points of the application measured."""
    return _application(spark.sparkContext).measures


def points_of(frame: DataFrame) -> tuple[Point, ...]:
    """The points that a DataFrame goes through, the nearest first."""
    application = _applications.get(frame.sparkSession.sparkContext)
    if application is None:
        return ()
    names = _names(frame._jdf.queryExecution().analyzed())
    return tuple(point for name, _ in names if (point := application.points.get(name)))


def register(spark: SparkSession, kind: str, point: Point) -> tuple[str, Measures]:
    """(the name under which Spark's plan and the tasks have the point, where the tasks count)."""
    application = _application(spark.sparkContext)
    host = f"penstock {kind} {point.name} {next(application.numbers)}"
    application.points[host] = point
    return host, application.measures


def _names(plan: Any) -> list[tuple[str, bool]]:
    """The names of the points in a plan, from the sink back, and whether no shed comes before each."""
    found = (line.split("\t") for line in lines(compiled(_NAMES).of(plan)))
    return [(name, where == "first") for name, where in found]


def _application(context: SparkContext) -> _Application:
    if context not in _applications:
        _applications[context] = _Application(measures=Measures(context))
    return _applications[context]
