"""`penstock.run`: dataflows on Spark under control, until the time is over or somebody says stop."""

from __future__ import annotations

import logging
import signal
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from pyspark.sql import SparkSession

from penstock.api.choices import AnyFlow, Options, choose_policies, find_flows, loop_settings
from penstock.api.journals import DEFAULT_JOURNAL, open_journal
from penstock.api.machine_classes import executor_class
from penstock.api.realtime import REALTIME_CONF, run_realtime
from penstock.api.result import RunResult, missed_goals
from penstock.control import PolicyRun, Subscriber, desired_of
from penstock.control.summary import RunSummary, Summary
from penstock.dataflow import Dataflow
from penstock.errors import InputError, UserError
from penstock.spark.cluster.jars import kafka_connector_conf
from penstock.spark.cluster.loopback import LoopbackCluster
from penstock.spark.internals.executors import Executors
from penstock.spark.launch import controls_of, have_executors, launch
from penstock.spark.pilot import Pilot
from penstock.spark.runtime import EXECUTOR, RuntimeOptions, SparkRuntime
from penstock.spark.session import create_session
from penstock.spark.several_queries import SharedRuntime, launch_shared
from penstock.telemetry import MachineClass
from penstock.web.live_page import serve
from penstock.web.recorded import run_called, write_page

log = logging.getLogger(__name__)

ExecutionMode = Literal["micro-batch", "realtime"]
DEFAULT_MASTER = "local[2]"
ON_LOOPBACK = {
    "spark.executor.memory": "512m",
    "spark.executor.cores": "1",
    "spark.driver.memory": "768m",
}


def run(
    flow: AnyFlow | Sequence[AnyFlow],
    *,
    policies: Sequence[str | PolicyRun] = (),
    options: Options | None = None,
    for_s: float | None = None,
    master: str | None = None,
    cluster: int | None = None,
    executors: int = 1,
    max_executors: int | None = None,
    interval_s: float = 5.0,
    checkpoint: Path | None = None,
    journal: Path = DEFAULT_JOURNAL,
    report: Path | None = None,
    machine: str | None = None,
    classes: str = "current",
    audit: float = 0.0,
    dry_run: bool = False,
    conf: Mapping[str, str] | None = None,
    ui: str | int | None = None,
    subscribers: Sequence[Subscriber] = (),
    mode: ExecutionMode = "micro-batch",
    batch_s: float = 60.0,
) -> RunResult:
    """Run dataflows on Spark under the named policies and return what it came to; Ctrl-C ends it early.

    `flow` is a dataflow, a YAML or Python file, or a workload's name; several become queries of one application.
    `cluster` starts so many loopback workers for the run; `master` is passed on to Spark as it is. With the same
    `checkpoint` and `journal` as an earlier run, that run goes on. `machine` names a machine class of `classes` that
    executors run on: then the run has a bill. `audit` is the share of records that also go through the best
    alternate while a cheaper one runs, to measure its value. `ui` is the port (or HOST:PORT) of the live page; the
    page as a file is written beside the journal at the end.

    With the mode `realtime` one dataflow of native operators runs in Spark's real-time mode, `batch_s` seconds from
    checkpoint to checkpoint, on as many executors as its slots take. Its latency is measured at the sink; nothing is
    steered, and there is no journal.
    """
    dataflow, several = find_flows(flow)
    if mode == "realtime" and (several or policies or machine is not None or ui is not None):
        raise InputError("in real-time mode one dataflow runs by itself: no policies, machine class or page")
    if master is not None and cluster is not None:
        raise InputError("--master and --cluster exclude each other: --cluster starts a cluster of its own")
    if machine is not None:  # a wrong name is told before Spark starts
        executor_class(machine, classes, cores=1, available=None)
    runs = choose_policies(policies, options)
    settings = loop_settings(options, interval_s=interval_s, dry_run=dry_run)
    resume, controls = (None, {}) if mode == "realtime" else _earlier_run(journal, checkpoint)
    stop = threading.Event()
    summary = Summary()
    with ExitStack() as stack:
        stack.enter_context(_stopping_on_signals(stop))
        limit = max_executors
        given = dict(conf or {})
        if cluster is not None:
            limit = limit or cluster
            if not 1 <= executors <= limit:
                raise InputError(f"--executors {executors} does not fit a cluster of {limit}")
            loopback = stack.enter_context(LoopbackCluster(workers=cluster, cores=1, memory="1g"))
            master, given = loopback.master_url, {**ON_LOOPBACK, **given}
        if mode == "realtime":
            given = {**REALTIME_CONF, **given}
        spark = _session(dataflow, master or DEFAULT_MASTER, given)
        stack.callback(spark.stop)
        folder = checkpoint or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="penstock-")))
        if mode == "realtime":
            return run_realtime(
                spark,
                dataflow,
                checkpoint=folder,
                given=cluster or 0,
                limit=limit,
                batch_s=batch_s,
                interval_s=interval_s,
                for_s=for_s,
                stop=stop,
            )
        if cluster is not None and given.get("spark.dynamicAllocation.enabled") != "true":
            have_executors(spark, executors, given=cluster)
        runtime = (launch_shared if several else launch)(
            spark,
            dataflow,
            checkpoint=folder,
            controls=controls,
            audit=audit,
            options=RuntimeOptions(machine=_machine(spark, machine, classes, limit)),
        )
        stack.callback(runtime.stop)
        # Before that: the batch that a stop cuts short is no error.
        stack.callback(spark.sparkContext.setLogLevel, "OFF")
        autopilot = Pilot(
            runtime,
            runs,
            settings=settings,
            journal=journal,
            options={
                "command": "run",
                "policies": ",".join(each.policy.name for each in runs),
                "checkpoint": _resolved(checkpoint),
            },
            resume=resume,
            subscribers=[summary, *subscribers],
        )
        stack.callback(autopilot.journal.close)
        if ui is not None and (page := serve(autopilot.loop, ui, title=dataflow.name)) is not None:
            stack.callback(page.close)
            log.warning("page %s", page.url_with_token)
        with autopilot:
            _wait(runtime, stop, for_s)
        failure = runtime.failure()
        figures = _figures(dataflow, summary.result(), runtime, autopilot)
    figures["bill"] = figures["cost"] if machine is not None else None
    figures["journal"] = str(journal)
    figures["report"] = _write_page(journal, figures["run"], report)
    return RunResult(
        figures=figures,
        missed=missed_goals(dataflow, figures),
        failure=None if failure is None else _first_line(failure),
    )


def _earlier_run(journal_path: Path, checkpoint: Path | None) -> tuple[str | None, dict[str, Any]]:
    """The newest run in the journal on the same checkpoint, to go on with, and the controls it had in force."""
    with open_journal(journal_path) as journal:
        if checkpoint is None or not checkpoint.exists():
            return None, {}
        known = [run.id for run in journal.runs() if run.options.get("checkpoint") == _resolved(checkpoint)]
        latest = journal.latest(known[-1]) if known else None
        return (None, {}) if latest is None else (known[-1], controls_of(desired_of(latest)))


def _resolved(checkpoint: Path | None) -> str:
    return "" if checkpoint is None else str(checkpoint.resolve())


def _session(dataflow: Dataflow, master: str, conf: Mapping[str, str]) -> SparkSession:
    kafka: dict[str, str] = {}
    if any(o.connector is not None and o.connector.kind == "kafka" for o in dataflow.operators):
        kafka = kafka_connector_conf()
    spark = create_session(master, f"penstock {dataflow.name}", extra_conf={**kafka, **conf})
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def _machine(spark: SparkSession, machine: str | None, classes: str, limit: int | None) -> MachineClass:
    """What an executor is and costs."""
    if machine is None:
        return replace(EXECUTOR, available=limit)
    cores = max(e.cores for e in Executors(spark).list())
    return executor_class(machine, classes, cores=cores, available=limit)


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


def _figures(
    dataflow: Dataflow, summary: RunSummary, runtime: SparkRuntime | SharedRuntime, autopilot: Pilot
) -> dict[str, Any]:
    return {
        **summary.figures(),
        "flow": dataflow.name,
        "run": autopilot.loop.run_id,
        "batches": runtime.usage.batches,
        "unavailable": {c.name: c.unavailable for c in runtime.capabilities.missing()},
    }


def _write_page(journal: Path, run_id: str | None, out: Path | None) -> str | None:
    """The page of the run as a file, beside the journal unless it says where; None when it could not be written."""
    path = out or journal.with_name(f"{run_id or 'run'}.html")
    try:
        with open_journal(journal) as opened:
            write_page(opened, run_called(opened, run_id or "last"), path)
    except UserError as problem:
        log.warning("the page of the run could not be written: %s", problem)
        return None
    return str(path)


def _first_line(failure: BaseException) -> str:
    return str(failure).strip().splitlines()[0][:300]
