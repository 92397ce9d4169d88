"""`penstock submit`: what steers the program that `penstock_submit` runs.

Importing this needs no PySpark: the program decides when Spark is imported.
"""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from penstock.api.durations import parse_duration
from penstock.dataflow.graph import Statistic
from penstock.errors import InputError, did_you_mean

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.control.changes import Mode
    from penstock.spark.goals import Goals
    from penstock.spark.pilot import Pilot
    from penstock.web.server import PageServer

LOOK_S = 0.5
PREFIX = "spark.penstock."
NAMES = {
    "latency": "latency",
    "goals": "goals",
    "mode": "mode",
    "maxExecutors": "max_executors",
    "spareExecutors": "spare_executors",
    "interference": "interference",
    "interval": "interval",
    "journal": "journal",
    "ui": "ui",
}
"""Settings of Spark's (after `spark.penstock.`) and the options that they stand for."""
OURS = {"touched", "pilot", "controls", "gateway"}
"""Settings of that prefix that Penstock itself writes, or its listener reads."""
Say = Callable[[str], None]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class _LatencyGoal(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    latency: str | Positive | None = None
    statistic: Statistic | None = None


class QueryGoals(_LatencyGoal):
    """The goals of one query; what it leaves out is that of all queries."""

    priority: int = 1
    min_accuracy: Annotated[float, Field(ge=0, le=1)] = 0.0


class GoalsFile(_LatencyGoal):
    """The file of `--goals`: the latency goal of every query, and `queries` for those that differ."""

    queries: dict[str, QueryGoals] = Field(default_factory=dict)


class Wanted(BaseModel):
    """What was asked for, on the command line or by settings of Spark's."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    latency: str | None = None
    goals: Path | None = None
    mode: str = "act"
    max_executors: Annotated[int, Field(ge=1)] | None = None
    spare_executors: Annotated[int, Field(ge=0)] = 0
    interference: bool = False
    interval: str = "5s"
    journal: Path = Path(".penstock/runs.sqlite")
    ui: str | None = None

    def goals_of(self, query: str) -> Goals:
        """What a query must deliver: its own entry, else the command line, else the file for all."""
        from penstock.spark.goals import Goals

        file = goals_file(self.goals) if self.goals is not None else GoalsFile()
        own = file.queries.get(query, QueryGoals())
        told = own.latency or self.latency or file.latency
        return Goals(
            latency_ms=None if told is None else 1e3 * parse_duration(str(told)),
            statistic=own.statistic or file.statistic or "mean",
            priority=own.priority,
            min_accuracy=own.min_accuracy,
        )


def goals_file(path: Path) -> GoalsFile:
    """The goals in a file; an `InputError` says what is wrong with it."""
    try:
        return GoalsFile.model_validate(yaml.safe_load(path.read_text(encoding="utf-8")) or {})
    except (OSError, UnicodeDecodeError) as problem:
        raise InputError(f"cannot read '{path}': {getattr(problem, 'strerror', 'is not text')}") from problem
    except yaml.YAMLError as problem:
        raise InputError(f"{path}: is not YAML: {' '.join(str(problem).split())}") from problem
    except ValidationError as problem:
        raise InputError(f"{path}: {_told(problem, {**QueryGoals.model_fields, 'queries': None})}") from None


def _told(problem: ValidationError, known: Iterable[str]) -> str:
    """The first thing that is wrong, and where."""
    first = problem.errors()[0]
    where = ".".join(str(part) for part in first["loc"] if part not in ("str", "[key]")) or "file"
    if first["type"] in ("model_type", "dict_type"):
        return f"{where}: should have names with values, such as 'latency: 2s', not {first['input']!r}"
    if first["type"] == "extra_forbidden":
        return f"there is no '{where}'{did_you_mean(str(first['loc'][-1]), known)}"
    return f"{where}: {first['msg'].lower()}, not {first['input']!r}"


def steering_of(
    given: Mapping[str, Any], *, say: Say, conf: Mapping[str, str] | None = None
) -> Callable[[threading.Event], None]:
    """What runs beside the program until it is told to stop. Bad options are refused here, before anything starts.

    So are bad settings in `conf`, those of Spark's that the command line gives.
    """
    _checked(given)
    for key, value in (conf or {}).items():
        if key.startswith(PREFIX):
            _check_setting(key, value)
    files = ("goals", "journal")  # named from here, wherever the program goes
    absolute = {name: Path(value).absolute() if name in files else value for name, value in given.items()}
    home = Path.cwd()
    return lambda stop: _watch(absolute, home, stop, say)


def _check_setting(key: str, value: str) -> None:
    name = key.removeprefix(PREFIX)
    if name in OURS:
        return
    if name not in NAMES:
        raise InputError(f"there is no setting '{key}'{did_you_mean(name, NAMES)}")
    try:
        _checked({NAMES[name]: value})
    except InputError as problem:
        raise InputError(f"{key}: {problem}") from None


def _checked(given: Mapping[str, Any]) -> Wanted:
    try:
        wanted = Wanted.model_validate(dict(given))
    except ValidationError as problem:
        raise InputError(_told(problem, ())) from None
    if wanted.mode not in ("observe", "recommend", "act"):
        raise InputError(f"mode: observe, recommend or act, not '{wanted.mode}'")
    if wanted.latency is not None:
        parse_duration(wanted.latency)
    if wanted.goals is not None:
        found = goals_file(wanted.goals)
        for where, each in {"": found, **{f"queries.{n}.": q for n, q in found.queries.items()}}.items():
            try:
                parse_duration(str(each.latency or "1s"))
            except InputError as problem:
                raise InputError(f"{wanted.goals}: {where}latency: {problem}") from None
    parse_duration(wanted.interval)
    if wanted.ui is not None:
        from penstock.web.server import Address

        Address.parse(wanted.ui)
    return wanted


def _watch(given: Mapping[str, Any], home: Path, stop: threading.Event, say: Say) -> None:
    """Attach to the application once it is there, and again if the program makes another one."""
    log = logging.getLogger("penstock")
    log.propagate = False  # the program's own log stays its own
    log.addHandler(_OneLine(say))
    pilot: Pilot | None = None
    page: PageServer | None = None
    while not stop.wait(LOOK_S):
        if pilot is not None and not pilot.running:
            pilot, page = _ended(pilot, page)
        if pilot is None and (spark := _session()) is not None:
            pilot, page = _steer(spark, _checked({**_from_conf(spark, say), **given}), home, say)
    _ended(pilot, page)


def _ended(pilot: Pilot | None, page: PageServer | None) -> tuple[None, None]:
    if page is not None:
        page.close()
    if pilot is not None:
        pilot.stop()
        pilot.journal.close()
    return None, None


def _session() -> SparkSession | None:
    """The session of the program, once it has one. Asks nothing before the program has imported PySpark."""
    pyspark = sys.modules.get("pyspark")
    context = getattr(getattr(pyspark, "SparkContext", None), "_active_spark_context", None)
    if context is None or getattr(context, "_jsc", None) is None:  # set before its constructor has ended
        return None
    from pyspark.sql import SparkSession

    try:
        default = getattr(context._jvm, "org.apache.spark.sql.classic.SparkSession").getDefaultSession()
        if not default.isDefined():
            return None
        spark = SparkSession.__new__(SparkSession)  # its constructor would change the default session
        spark._sc, spark._jsc, spark._jvm = context, context._jsc, context._jvm
        spark._jsparkSession = default.get()
    except Exception:  # a session that is being made, or stopped, at this moment
        return None
    return spark


def _from_conf(spark: SparkSession, say: Say) -> dict[str, str]:
    found = dict(spark.sparkContext.getConf().getAll())
    given = {key.removeprefix(PREFIX): value for key, value in found.items() if key.startswith(PREFIX)}
    for key in given.keys() - NAMES.keys() - OURS:
        say(f"there is no setting '{PREFIX}{key}'{did_you_mean(key, NAMES)}")
    return {name: given[key] for key, name in NAMES.items() if key in given}


def _steer(spark: SparkSession, wanted: Wanted, home: Path, say: Say) -> tuple[Pilot, PageServer | None]:
    from penstock.spark.attach import attach
    from penstock.web.live_page import serve

    file = goals_file(wanted.goals) if wanted.goals is not None else GoalsFile()
    usual = wanted.goals_of("")
    pilot = attach(
        spark,
        latency_ms=usual.latency_ms,
        statistic=usual.statistic,
        goals={name: wanted.goals_of(name) for name in file.queries},
        max_executors=wanted.max_executors,
        spare_executors=wanted.spare_executors,
        interference=wanted.interference,
        interval_s=parse_duration(wanted.interval),
        mode=cast("Mode", wanted.mode),
        journal=_journal(home / wanted.journal, say),
    )
    name = spark.sparkContext.appName or "application"
    page = serve(pilot.loop, wanted.ui, title=name) if wanted.ui is not None else None
    where = f"; page {page.url_with_token}" if page is not None else ""
    moves = ", interference on" if wanted.interference else ""
    say(f"controls the queries of {name}, mode {wanted.mode}{moves}{where}")
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
        self._say(record.getMessage().removeprefix("penstock: "))
