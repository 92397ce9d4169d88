"""`penstock run`: a dataflow on Spark under control, with a live view, and a report at the end."""

from __future__ import annotations

import importlib.metadata
import signal
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from rich.live import Live

from penstock.cli.choices import choose_policies, find_flow
from penstock.cli.durations import parse_duration, shown_duration
from penstock.cli.journals import DEFAULT_JOURNAL, open_journal
from penstock.cli.live import LiveView
from penstock.cli.machine_classes import executor_class
from penstock.cli.output import GOAL_MISSED, InputError, complaints, print_json, print_table, results
from penstock.cli.totals import Totals
from penstock.control import Settings as LoopSettings
from penstock.control import desired_of
from penstock.dataflow import Dataflow, together
from penstock.spark.cluster.jars import UnresolvedError, kafka_connector_conf
from penstock.spark.cluster.loopback import LoopbackCluster
from penstock.spark.internals.executors import Executors
from penstock.spark.launch import controls_of, have_executors, launch
from penstock.spark.pilot import Autopilot
from penstock.spark.runtime import EXECUTOR, RuntimeOptions, SparkRuntime
from penstock.spark.session import create_session
from penstock.spark.several_queries import SharedRuntime, launch_shared
from penstock.telemetry import MachineClass
from penstock.web.report import Section, html_report

DEFAULT_MASTER = "local[2]"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRequest:
    """What the command line asked for."""

    flow: str
    beside: tuple[str, ...] = ()
    """Further dataflows, which run as queries of their own on the same executors, under the same control."""
    master: str | None = None
    cluster: int | None = None
    executors: int = 1
    max_executors: int | None = None
    policies: tuple[str, ...] = ()
    settings: tuple[str, ...] = ()
    duration: str | None = None
    interval_s: float = 5.0
    checkpoint: Path | None = None
    journal: Path | None = None
    report: Path | None = None
    machine: str | None = None
    """Class of the machines that executors run on; None: what they cost is not known."""
    classes: str = "current"
    audit: float = 0.0
    dry_run: bool = False
    conf: tuple[tuple[str, str], ...] = ()


def spark_settings(words: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """`KEY=VALUE` words as pairs."""
    pairs = []
    for word in words:
        key, equals, value = word.partition("=")
        if not equals or not key.startswith("spark."):
            raise InputError(f"--conf takes spark.KEY=VALUE, not '{word}'")
        pairs.append((key, value))
    return tuple(pairs)


def run(request: RunRequest, *, as_json: bool) -> None:
    """Run until the time is over or Ctrl-C, then print what was achieved. Exits 1 if a constraint was broken."""
    dataflow = find_flow(request.flow)
    if request.beside:
        dataflow = together(dataflow, *map(find_flow, request.beside))
    document = run_dataflow(dataflow, request, as_json=as_json)
    if any(constraint["held"] not in (None, 1) for constraint in document["constraints"]):
        raise SystemExit(GOAL_MISSED)


def run_dataflow(dataflow: Dataflow, request: RunRequest, *, as_json: bool = False) -> dict[str, Any]:
    """Run a declared dataflow, print what came of it, and return that as a document."""
    if request.master is not None and request.cluster is not None:
        raise InputError("--master and --cluster exclude each other: --cluster starts a cluster of its own")
    if request.machine is not None:  # a wrong name is told before Spark starts
        executor_class(request.machine, request.classes, cores=1, available=None)
    choices = choose_policies(request.policies, request.settings)
    seconds = parse_duration(request.duration) if request.duration else None
    journal_path = request.journal or DEFAULT_JOURNAL
    resume, controls = _earlier_run(journal_path, request.checkpoint)
    stop = threading.Event()
    totals, view = Totals(dataflow), LiveView(f"penstock run {dataflow.name}")
    with ExitStack() as stack:
        stack.enter_context(_stopping_on_signals(stop))
        with complaints.status("starting Spark …"):
            spark, limit = _session(dataflow, request, stack)
        checkpoint = request.checkpoint or Path(
            stack.enter_context(tempfile.TemporaryDirectory(prefix="penstock-"))
        )
        start = launch_shared if request.beside else launch
        runtime = start(
            spark,
            dataflow,
            checkpoint=checkpoint,
            controls=controls,
            audit=request.audit,
            options=RuntimeOptions(machine=_machine(request, spark, limit)),
        )
        stack.callback(runtime.stop)
        # Before that: the batch that a stop cuts short is no error.
        stack.callback(spark.sparkContext.setLogLevel, "OFF")
        autopilot = Autopilot(
            runtime,
            choices,
            settings=LoopSettings(interval_s=request.interval_s, dry_run=request.dry_run),
            journal=journal_path,
            options={
                "command": "run",
                "policies": ",".join(c.policy.name for c in choices),
                "checkpoint": _resolved(request.checkpoint),
            },
            resume=resume,
            subscribers=[totals, view],
        )
        stack.callback(autopilot.journal.close)
        with autopilot, _shown(view):
            _wait(runtime, stop, seconds)
        failure = runtime.failure()
        story = autopilot.report()
        document = _document(dataflow, totals, runtime, autopilot, journal_path)
        document["bill"] = totals.cost if request.machine is not None else None
    report = request.report or journal_path.with_name(f"{autopilot.loop.run_id}.html")
    _write_report(report, dataflow, document, totals, story)
    document["report"] = str(report)
    if as_json:
        print_json(document)
    else:
        _print(document)
    if failure is not None:
        raise InputError(f"the query failed: {_first_line(failure)}")
    return document


def _earlier_run(journal_path: Path, checkpoint: Path | None) -> tuple[str | None, dict[str, Any]]:
    """The newest run in the journal on the same checkpoint, to go on with, and the controls it had in force."""
    with open_journal(journal_path) as journal:
        if checkpoint is None or not checkpoint.exists():
            return None, {}
        known = [run.id for run in journal.runs() if run.options.get("checkpoint") == _resolved(checkpoint)]
        latest = journal.latest(known[-1]) if known else None
        if latest is None:
            return None, {}
        complaints.print(f"[dim]going on with run {known[-1]} and its checkpoint[/]")
        return known[-1], controls_of(desired_of(latest))


def _resolved(checkpoint: Path | None) -> str:
    return "" if checkpoint is None else str(checkpoint.resolve())


def _session(dataflow: Dataflow, request: RunRequest, stack: ExitStack) -> tuple[SparkSession, int | None]:
    """The Spark session and the most executors it can have; None: unknown, or none to change."""
    conf: dict[str, str] = {}
    limit = request.max_executors
    if request.cluster is not None:
        cluster = stack.enter_context(LoopbackCluster(workers=request.cluster, cores=1, memory="1g"))
        master, limit = cluster.master_url, limit or request.cluster
        conf = {"spark.executor.memory": "512m", "spark.executor.cores": "1", "spark.driver.memory": "768m"}
        if not 1 <= request.executors <= limit:
            raise InputError(f"--executors {request.executors} does not fit a cluster of {limit}")
    else:
        master = request.master or DEFAULT_MASTER
    kafka = any(o.connector is not None and o.connector.kind == "kafka" for o in dataflow.operators)
    if kafka:
        conf |= _kafka_conf()
    conf |= dict(request.conf)
    spark = create_session(master, f"penstock {dataflow.name}", extra_conf=conf)
    stack.callback(spark.stop)
    spark.sparkContext.setLogLevel("ERROR")
    if request.cluster is not None and conf.get("spark.dynamicAllocation.enabled") != "true":
        have_executors(spark, request.executors, given=request.cluster)
    return spark, limit


def _machine(request: RunRequest, spark: SparkSession, limit: int | None) -> MachineClass:
    """What an executor is and costs."""
    if request.machine is None:
        return replace(EXECUTOR, available=limit)
    cores = max(e.cores for e in Executors(spark).list())
    return executor_class(request.machine, request.classes, cores=cores, available=limit)


def _kafka_conf() -> dict[str, str]:
    try:
        return kafka_connector_conf()
    except UnresolvedError as problem:
        raise InputError(f"Spark's Kafka connector could not be had from Maven Central: {problem}") from None


def _wait(runtime: SparkRuntime | SharedRuntime, stop: threading.Event, seconds: float | None) -> None:
    """Return when the time is over, somebody said stop, or the query has ended."""
    # The time counts from the first batch: starting up is not part of what was asked for.
    end_s: float | None = None
    while not stop.is_set() and runtime.query_is_active():
        if seconds is not None:
            if end_s is None and runtime.has_begun():
                end_s = time.monotonic() + seconds
            if end_s is not None and time.monotonic() >= end_s:
                return
        stop.wait(0.2)


@contextmanager
def _stopping_on_signals(stop: threading.Event) -> Iterator[None]:
    """Let Ctrl-C and a polite kill end the run cleanly, with its report."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {n: signal.signal(n, lambda *_: stop.set()) for n in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _shown(view: LiveView) -> Iterator[None]:
    if not complaints.is_terminal:
        yield
        return
    with Live(get_renderable=lambda: view, console=complaints, refresh_per_second=2, transient=True):
        yield


def _document(
    dataflow: Dataflow,
    totals: Totals,
    runtime: SparkRuntime | SharedRuntime,
    autopilot: Autopilot,
    journal: Path,
) -> dict[str, Any]:
    usage = runtime.usage
    return {
        "flow": dataflow.name,
        "run": autopilot.loop.run_id,
        "seconds": totals.seconds,
        "batches": usage.batches,
        "records_in": usage.records_in,
        "records_out": totals.records_out,
        "shed": round(totals.shed),
        "dropped": totals.dropped(),
        "latency_ms": totals.latency_ms(),
        "constraints": totals.constraints(),
        "accuracy": totals.accuracy(),
        "executor_seconds": usage.executor_seconds,
        "alternates": totals.alternates(),
        "actions": totals.actions(),
        "faults": dict(autopilot.loop.faults),
        "unavailable": {c.name: c.unavailable for c in runtime.capabilities.missing()},
        "journal": str(journal),
    }


def _write_report(
    path: Path, dataflow: Dataflow, document: dict[str, Any], totals: Totals, story: str
) -> None:
    late = document["latency_ms"]
    sections = [
        Section(
            title="Goals",
            columns=("constraint", "bound, ms", "", "held in % of intervals", "mean, ms", "p95, ms"),
            rows=tuple(
                (
                    c["name"],
                    c["bound_ms"],
                    "held" if c["held"] == 1 else "missed",
                    None if c["held"] is None else 100 * c["held"],
                    c["mean_ms"],
                    c["p95_ms"],
                )
                for c in document["constraints"]
            ),
        ),
        Section(
            title="The run",
            columns=("", ""),
            rows=(
                ("micro-batches", document["batches"]),
                ("records in", document["records_in"]),
                ("records at the sinks", document["records_out"]),
                ("records shed", document["shed"]),
                *((f"latency {name}, ms", late[name]) for name in ("mean", "p50", "p95", "p99")),
                *(
                    (f"accuracy of {s}, %", None if a is None else 100 * a)
                    for s, a in document["accuracy"].items()
                ),
                ("executor-seconds", document["executor_seconds"]),
                ("bill", document["bill"]),
                *(
                    (f"{kind} actions", ", ".join(f"{n} {status}" for status, n in by_status.items()))
                    for kind, by_status in document["actions"].items()
                ),
            ),
        ),
    ]
    if document["dropped"]:
        sections.append(
            Section(
                title="What was dropped",
                columns=("where", "records", "% of what came by", "for", "why"),
                rows=tuple(
                    (d["where"], d["records"], 100 * d["share"], d["sink"], d["why"])
                    for d in document["dropped"]
                ),
            )
        )
    text = html_report(
        title=f"Penstock: {dataflow.name}",
        subtitle=f"run {document['run']}, {shown_duration(max(1.0, document['seconds']))}",
        sections=sections if dataflow.constraints else sections[1:],
        cycles=totals.cycles,
        story=story,
        version=importlib.metadata.version("penstock"),
    )
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as problem:
        complaints.print(f"[red]the report could not be written:[/] {problem}")


def _print(document: dict[str, Any]) -> None:
    late = document["latency_ms"]
    length = shown_duration(max(1.0, document["seconds"]))
    results.print(f"[bold]{document['flow']}[/], {length} on Spark, {document['batches']} micro-batches\n")
    if document["constraints"]:
        print_table(
            "Constraints",
            ["name", "bound ms", "held in % of intervals", "mean ms", "p95 ms"],
            [
                [
                    c["name"],
                    c["bound_ms"],
                    None if c["held"] is None else 100 * c["held"],
                    c["mean_ms"],
                    c["p95_ms"],
                ]
                for c in document["constraints"]
            ],
        )
    print_table(
        "",
        ["", ""],
        [
            ["records in", document["records_in"]],
            ["records at the sinks", document["records_out"]],
            ["records shed", document["shed"]],
            [
                "latency mean / p95 / p99, ms",
                " / ".join(f"{late[n] or 0:,.0f}" for n in ("mean", "p95", "p99")),
            ],
            *(
                [f"accuracy of {s}, %", None if a is None else 100 * a]
                for s, a in document["accuracy"].items()
            ),
            ["executor-seconds", document["executor_seconds"]],
            *([["bill", document["bill"]]] if document["bill"] is not None else []),
            *(
                [f"{k} actions", ", ".join(f"{n} {s}" for s, n in v.items())]
                for k, v in document["actions"].items()
            ),
        ],
    )
    if document["dropped"]:
        print_table(
            "\nWhat was dropped",
            ["where", "records", "% of what came by", "for", "why"],
            [[d["where"], d["records"], 100 * d["share"], d["sink"], d["why"]] for d in document["dropped"]],
        )
    if document["faults"]:
        results.print(f"[red]faults survived:[/] {document['faults']}")
    results.print(
        f"\nreport   {document['report']}\nexplain  penstock explain {document['run']}", style="dim"
    )


def _first_line(failure: BaseException) -> str:
    return str(failure).strip().splitlines()[0][:300]
