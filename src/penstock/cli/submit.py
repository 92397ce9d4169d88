"""`penstock submit`: what steers the program that `penstock_submit` runs.

Importing this needs no PySpark: the program decides when Spark is imported.
"""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from penstock.api.durations import parse_duration
from penstock.errors import InputError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from penstock.spark.pilot import Autopilot
    from penstock.web.server import PageServer

LOOK_S = 0.5
PREFIX = "spark.penstock."
NAMES = {
    "latency": "latency",
    "goals": "goals",
    "mode": "mode",
    "maxExecutors": "max_executors",
    "interval": "interval",
    "journal": "journal",
    "ui": "ui",
}
"""Settings of Spark's (after `spark.penstock.`) and the options that they stand for."""
Say = Callable[[str], None]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class QueryGoals(BaseModel):
    """The goals of one query."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    latency: str | Positive


class GoalsFile(BaseModel):
    """The file of `--goals`: `latency` for every query, `queries` for those that differ."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    latency: str | Positive | None = None
    queries: dict[str, QueryGoals] = Field(default_factory=dict)


class Wanted(BaseModel):
    """What was asked for, on the command line or by settings of Spark's."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    latency: str | None = None
    goals: Path | None = None
    mode: str = "act"
    max_executors: Annotated[int, Field(ge=1)] | None = None
    interval: str = "5s"
    journal: Path = Path(".penstock/runs.sqlite")
    ui: str | None = None

    def latency_ms(self, query: str) -> float | None:
        """The bound that a query must keep."""
        file = goals_file(self.goals) if self.goals is not None else GoalsFile()
        own = file.queries.get(query)
        told = own.latency if own is not None else self.latency or file.latency
        return None if told is None else 1e3 * parse_duration(str(told))


def goals_file(path: Path) -> GoalsFile:
    """The goals in a file; an `InputError` says what is wrong with it."""
    try:
        return GoalsFile.model_validate(yaml.safe_load(path.read_text(encoding="utf-8")) or {})
    except OSError as problem:
        raise InputError(f"cannot read '{path}': {problem.strerror}") from problem
    except yaml.YAMLError as problem:
        raise InputError(f"{path}: is not YAML: {' '.join(str(problem).split())}") from problem
    except ValidationError as problem:
        first = problem.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "file"
        raise InputError(f"{path}: {where}: {first['msg'].lower()}") from None


def steering_of(given: Mapping[str, Any], *, say: Say) -> Callable[[threading.Event], None]:
    """What runs beside the program until it is told to stop. Bad options are refused here, before anything starts."""
    _checked(given)
    return lambda stop: _watch(given, stop, say)


def _checked(given: Mapping[str, Any]) -> Wanted:
    try:
        wanted = Wanted.model_validate(dict(given))
    except ValidationError as problem:
        first = problem.errors()[0]
        raise InputError(f"{'.'.join(map(str, first['loc']))}: {first['msg'].lower()}") from None
    if wanted.mode not in ("observe", "recommend", "act"):
        raise InputError(f"mode: observe, recommend or act, not '{wanted.mode}'")
    wanted.latency_ms("")
    parse_duration(wanted.interval)
    if wanted.ui is not None:
        from penstock.web.server import Address

        Address.parse(wanted.ui)
    return wanted


def _watch(given: Mapping[str, Any], stop: threading.Event, say: Say) -> None:
    """Look for running queries and steer them, one after the other, until the program ends."""
    log = logging.getLogger("penstock")
    log.propagate = False  # the program's own log stays its own
    log.addHandler(_OneLine(say))
    pilot: Autopilot | None = None
    page: PageServer | None = None
    others: set[str] = set()
    while not stop.wait(LOOK_S):
        running = _running()
        if pilot is not None and not pilot.running:
            pilot, page = _ended(pilot, page)
        for spark, query in running:
            if pilot is None:
                wanted = _checked({**_from_conf(spark), **given})
                pilot, page = _steer(spark, query, wanted, say)
                others.add(str(query.runId))
            elif str(query.runId) not in others:
                others.add(str(query.runId))
                say(f"query {query.name or query.id} runs beside the one that is controlled, without control")
    _ended(pilot, page)


def _ended(pilot: Autopilot | None, page: PageServer | None) -> tuple[None, None]:
    if page is not None:
        page.close()
    if pilot is not None:
        pilot.stop()
        pilot.journal.close()
    return None, None


def _running() -> list[tuple[SparkSession, StreamingQuery]]:
    """Queries that have ended a batch, each with its session. Asks nothing before the program has imported PySpark."""
    pyspark = sys.modules.get("pyspark")
    context = getattr(getattr(pyspark, "SparkContext", None), "_active_spark_context", None)
    if (
        context is None or getattr(context, "_jsc", None) is None
    ):  # it is set before its constructor has ended
        return []
    from pyspark.sql import SparkSession

    found = []
    try:
        sessions = getattr(context._jvm, "org.apache.spark.sql.classic.SparkSession")
        default = sessions.getDefaultSession()
        if not default.isDefined():
            return []
        for one in list(default.get().sharedState().activeStreamingQueries().values()):
            spark = SparkSession.__new__(SparkSession)  # its constructor would change the default session
            spark._sc, spark._jsc, spark._jvm = context, context._jsc, context._jvm
            spark._jsparkSession = one.sparkSession()
            run = str(one.runId())
            query = next((q for q in spark.streams.active if str(q.runId) == run), None)
            if query is not None and query.lastProgress is not None:
                found.append((spark, query))
    except Exception:  # a session that is being made, or stopped, at this moment
        return []
    return found


def _from_conf(spark: SparkSession) -> dict[str, str]:
    conf = spark.sparkContext.getConf()
    pairs = {name: conf.get(PREFIX + key) for key, name in NAMES.items()}
    return {name: value for name, value in pairs.items() if value is not None}


def _steer(
    spark: SparkSession, query: StreamingQuery, wanted: Wanted, say: Say
) -> tuple[Autopilot | None, PageServer | None]:
    from penstock.spark.attach import attach
    from penstock.web.live_page import serve

    name = query.name or str(query.id)
    pilot = attach(
        spark,
        query,
        latency_ms=wanted.latency_ms(name),
        max_executors=wanted.max_executors,
        interval_s=parse_duration(wanted.interval),
        dry_run=wanted.mode != "act",
        journal=_journal(wanted.journal, say),
        start=False,
    )
    pilot.loop.modes.now = wanted.mode  # type: ignore[assignment]  # checked
    page = serve(pilot.loop, wanted.ui, title=name) if wanted.ui is not None else None
    pilot.start()
    where = f"; page {page.url_with_token}" if page is not None else ""
    say(f"controls query {name}, mode {wanted.mode}{where}")
    return pilot, page


def _journal(path: Path, say: Say) -> Path | None:
    """The journal's path if it can be used; None: decisions are kept in memory."""
    from penstock.control import JournalError, SqliteJournal

    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        SqliteJournal(path).close()
    except (JournalError, OSError) as problem:
        say(f"the journal is kept in memory only: {problem}")
        return None
    return path


class _OneLine(logging.Handler):
    """Warnings of Penstock, a line each."""

    def __init__(self, say: Say) -> None:
        super().__init__(logging.WARNING)
        self._say = say

    def emit(self, record: logging.LogRecord) -> None:
        self._say(record.getMessage())
