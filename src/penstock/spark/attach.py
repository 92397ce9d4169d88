"""`penstock.attach`: steer all queries of an application that Penstock did not build."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

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
from penstock.spark.goals import Goals
from penstock.spark.pilot import Pilot
from penstock.spark.runtime import EXECUTOR, RuntimeOptions
from penstock.telemetry import MachineClass


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
    if type(spark).__module__.startswith("pyspark.sql.connect"):
        raise AttachError(
            "a Spark Connect session has no driver in this process; attach in the program that runs the driver"
        )
    if mode not in MODES:
        raise AttachError(f"there is no mode '{mode}'{did_you_mean(mode, MODES)}")
    most = max_executors if max_executors is not None else machine.available
    if min_executors < 1 or (most is not None and min_executors > most):
        raise AttachError(
            f"min_executors must lie in 1 to {most or 'as many as there are'}, not {min_executors}"
        )
    if spare_executors < 0:
        raise AttachError(f"spare_executors must be 0 or more, not {spare_executors}")
    usual = Goals(latency_ms=latency_ms, statistic=statistic)
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
    pilot.loop.modes.now = mode
    runtime.acts = lambda: pilot.loop.modes.now == "act"
    return pilot.start()
