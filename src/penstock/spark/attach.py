"""`penstock.attach`: steer all queries of an application that Penstock did not build."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from numbers import Integral, Real
from os import PathLike
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from penstock.control import PolicyRun, Settings, Subscriber
from penstock.control.changes import MODES, Mode
from penstock.dataflow.graph import Statistic
from penstock.errors import UserError, did_you_mean
from penstock.policies.elasticity import Elasticity, ElasticityOptions
from penstock.policies.interference import Interference, InterferenceOptions
from penstock.policies.provisioning import Provisioning, ProvisioningOptions
from penstock.policies.reasons import Reason
from penstock.policies.shedding import Shedding, SheddingOptions
from penstock.spark.application import ApplicationRuntime
from penstock.spark.goals import Goals, GoalsError
from penstock.spark.pilot import Pilot
from penstock.spark.runtime import EXECUTOR, RuntimeOptions
from penstock.telemetry import MachineClass

NO_TRAFFIC = (Elasticity, Interference, Provisioning, Shedding)
"""Policies that do not look at the traffic between tasks."""


class AttachError(UserError, ValueError):
    """What was given cannot be steered."""


def attach(
    spark: SparkSession,
    *,
    latency_ms: float | None = None,
    statistic: Statistic = "mean",
    goals: Mapping[str, Goals] | None = None,
    min_executors: int = 1,
    max_executors: int | None = None,
    spare_executors: int = 0,
    pacing: bool = False,
    interference: bool = False,
    mode: Mode = "act",
    policies: Sequence[PolicyRun] | None = None,
    interval_s: float = 5.0,
    journal: Path | str | None = None,
    machine: MachineClass = EXECUTOR,
    settings: Settings | None = None,
    subscribers: Sequence[Subscriber] = (),
) -> Pilot:
    """Hold goals for the queries of an application: observe them, scale executors, move state, tell what was done.

    Follows the application: all its queries, those that start later and those that start again under the same name.
    `latency_ms` applies to every query unless `goals` has an entry with its name. With any latency goal the
    elasticity policy holds it with `min_executors` to `max_executors` (default: as many as there have been), of which
    `spare_executors` are kept warm beyond those needed; `policies` may be given instead. With `pacing` it also sets
    trigger intervals and read limits. With `interference` state partitions leave executors that are slow or crowded,
    whichever other policies there are. `mode` is observe (look and write down), recommend (decide and explain as well)
    or act.

    The pilot works at once, on a thread of its own, until `stop`, the end of the `with` block, or the end of the
    application. Queries go on as they are, and what was changed for the time of control is put back.
    """
    _check_session(spark)
    _check_types(locals())
    if mode not in MODES:
        raise AttachError(f"there is no mode {mode!r}{did_you_mean(str(mode), MODES)}")
    if not 0 < interval_s < float("inf"):
        raise AttachError(f"interval_s must be more than 0, not {interval_s}")
    most = max_executors if max_executors is not None else machine.available
    if most is not None and most < 1:
        raise AttachError(f"max_executors must be at least 1, not {most}")
    if min_executors < 1 or (most is not None and min_executors > most):
        raise AttachError(
            f"min_executors must lie in 1 to {most or 'as many as there are'}, not {min_executors}"
        )
    if spare_executors < 0:
        raise AttachError(f"spare_executors must be 0 or more, not {spare_executors}")
    try:
        usual = Goals(latency_ms=latency_ms, statistic=statistic)
    except GoalsError as problem:
        raise AttachError(str(problem)) from None
    given = dict(goals or {})
    if policies is None:
        bounded = latency_ms is not None or any(g.latency_ms is not None for g in given.values())
        options = ElasticityOptions(
            min_nodes=min_executors, max_nodes=most, spare_nodes=spare_executors, pacing=pacing
        )
        policies = [PolicyRun(policy=Elasticity(), options=options)] if bounded else []
        # Silent where no query has `penstock.alternates` or `penstock.shed`. Spark spreads stateless work itself.
        policies.append(PolicyRun(policy=Provisioning(), options=ProvisioningOptions()))
        policies.append(PolicyRun(policy=Shedding(), options=SheddingOptions(moves="none", by_slots=True)))
    moves_state = any(isinstance(run.policy, Interference) for run in policies)
    if interference and not moves_state:
        policies = [*policies, PolicyRun(policy=Interference(), options=InterferenceOptions())]
        moves_state = True
    runtime = ApplicationRuntime(
        spark,
        goals=lambda name: given.get(name, usual),
        options=RuntimeOptions(
            machine=replace(machine, available=most),
            task_figures=moves_state,
            traffic=not all(isinstance(run.policy, NO_TRAFFIC) for run in policies),
        ),
        interval_s=interval_s,
    )
    if moves_state:
        runtime.tell(Reason(code="interference-on"))
    pilot = Pilot(
        runtime,
        policies,
        settings=replace(settings or Settings(), interval_s=interval_s),
        journal=journal,
        options={"command": "attach", "application": spark.sparkContext.appName or ""},
        subscribers=subscribers,
    )
    careful = mode == "act" and settings is not None and settings.dry_run
    pilot.loop.modes.now = "recommend" if careful else mode
    runtime.acts = lambda: pilot.loop.modes.now == "act"
    return pilot.start()


def _check_session(spark: Any) -> None:
    if type(spark).__module__.startswith("pyspark.sql.connect"):
        raise AttachError(
            "a Spark Connect session has no driver in this process; attach in the program that runs the driver"
        )
    if not isinstance(spark, SparkSession):
        raise AttachError(f"attach takes a SparkSession, not {_kind(spark)}")
    try:
        java = spark.sparkContext._jsc
        stopped = java is None or java.sc().isStopped()
    except (Py4JError, OSError):  # its driver is gone
        stopped = True
    if stopped:
        raise AttachError("this Spark session has been stopped; attach to one that runs")


def _check_types(given: Mapping[str, Any]) -> None:
    """Refuse arguments that are not what the parameter takes."""
    takes: dict[str, tuple[Any, str]] = {
        "goals": (Mapping | None, "a mapping of query names to penstock.Goals"),
        "min_executors": (Integral, "a whole number"),
        "max_executors": (Integral | None, "a whole number"),
        "spare_executors": (Integral, "a whole number"),
        "pacing": (bool, "True or False"),
        "interference": (bool, "True or False"),
        "policies": (Sequence | None, "a list of PolicyRun"),
        "interval_s": (Real, "a number of seconds"),
        "journal": (str | PathLike | None, "the path of a file"),
        "machine": (MachineClass, "a MachineClass"),
        "settings": (Settings | None, "penstock.control.Settings"),
        "subscribers": (Sequence, "a list of functions"),
    }
    for name, (kind, told) in takes.items():
        value = given[name]
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise AttachError(f"{name} takes {told}, not {_kind(value)}")
    each = {
        "goals": ((given["goals"] or {}).values(), Goals),
        "policies": (given["policies"] or (), PolicyRun),
    }
    for name, (values, kind) in each.items():
        for value in values:
            if not isinstance(value, kind):
                raise AttachError(f"{name} takes {takes[name][1]}, not of {_kind(value)}")
    for value in given["subscribers"]:
        if not callable(value):
            raise AttachError(f"subscribers takes a list of functions, not of {_kind(value)}")


def _kind(value: Any) -> str:
    """A value as a complaint names it: itself where that is short, else its type."""
    shown = repr(value)
    return shown if isinstance(value, str | Real | None) and len(shown) <= 40 else type(value).__name__
