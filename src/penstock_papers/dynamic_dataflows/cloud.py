"""A cloud by intervals, as the paper simulates it: rates and machine speeds vary, a policy adapts, the bill runs.

`Cloud` is a runtime behind the loop: whatever policy runs there sees snapshots and gives actions, ours and the
paper's alike. Cores are shared: any core runs any operator, as on Spark, so a record that is read passes the whole
dataflow within its interval and what waits, waits at the sources. `hold` is the paper's own model for its table 2, in
which a core belongs to one operator and nothing adapts.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np

from penstock.control import Loop, PolicyRun, Settings
from penstock.control.damping import Damping
from penstock.control.plan import NotReadyError, Outcome, Plan
from penstock.dataflow import Dataflow
from penstock.policies.actions import Acquire, Action, Release, Switch
from penstock.policies.policy import AnyPolicy
from penstock.policies.provisioning import Demand, Deployment, Provision, Provisioning, ProvisioningOptions
from penstock.policies.provisioning.deployment import carried_rps
from penstock.policies.provisioning.flow import advance, mean_share
from penstock.policies.provisioning.problem import Floats, Ints, full_rates
from penstock.policies.reasons import Reason
from penstock.telemetry import (
    Alternates,
    Constraints,
    Nodes,
    Operators,
    Sinks,
    Snapshot,
    Sources,
    Streams,
    Tasks,
)
from penstock_papers.dynamic_dataflows.baselines import Baseline
from penstock_papers.dynamic_dataflows.deciders import DECIDERS
from penstock_papers.dynamic_dataflows.roads import STEP_S, MachineSpeeds, roads, roads_demand

STEADILY = Settings(
    interval_s=STEP_S, damping=Damping(rest_after_growth=0, rest_after_shrink=0, rest_after_switch=0)
)
"""The loop without cool-downs: an interval of two minutes is longer than any."""
FIRST_THROUGHPUT = 0.95
"""What our deployment at the start carries; about what a decider of the paper must be asked for to reach our Ω."""
ANY_TASK = 10**9
"""As many tasks as there are cores."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Course:
    """What happened, an entry per interval."""

    throughput: Floats
    value: Floats
    rate_rps: Floats
    machines: Ints
    cores: Ints
    backlog_s: float
    """Seconds of mean input that waited at the end."""
    decide_s: Floats
    """CPU seconds."""
    switches: int
    cost: float
    """The whole bill."""
    highest_per_hour: float
    profit: float

    @property
    def held_share(self) -> float:
        """Share of the intervals with Ω ≥ Ω̂ - ε."""
        return float((self.throughput >= 0.75 - 1e-9).mean())


class Cloud:
    """Machines that are rented, shared by all operators. Implements `Runtime` and `Clock`."""

    def __init__(
        self, dataflow: Dataflow, demand: Demand, first: Deployment, rates: Floats, speeds: MachineSpeeds
    ) -> None:
        self._flow, self._demand, self._rates, self._speeds = dataflow, demand, rates, speeds
        self._rows = first.machines.copy()
        self._began = np.zeros(len(self._rows))
        self._ready_s = np.zeros(len(self._rows))  # those of the start work at once
        self._serial = np.arange(len(self._rows))
        self._born = len(self._rows)
        self._active = first.alternates.copy()
        self._waiting, self._spent, self._step, self._seen = 0.0, 0.0, 0, 0
        self._speed = demand.core_speed[self._rows]
        self.switches = 0
        self.shares: list[float] = []
        self.values: list[float] = []
        self.machines: list[int] = []
        self.per_hour: list[float] = []

    def now(self) -> float:
        """Simulated seconds."""
        return self._step * STEP_S

    def sleep_until(self, time_s: float) -> None:
        """Let intervals pass."""
        while self.now() < time_s - 1e-6 and self._step < len(self._rates):
            self._pass()

    def _pass(self) -> None:
        demand, graph, now = self._demand, self._demand.graph, self.now()
        factor = self._speeds.of(range(self._born), self._step)[self._serial]
        speed = demand.core_speed[self._rows] * factor
        works = np.clip((now + STEP_S - self._ready_s) / STEP_S, 0.0, 1.0)
        power = float((demand.cores[self._rows] * speed * works).sum())
        cost, selectivity = graph.of(self._active)
        mean = float(demand.input_rps.sum())
        work_s = float((cost * full_rates(graph, demand.input_rps, selectivity)).sum()) / mean
        came = mean * float(self._rates[self._step]) * STEP_S
        done = min(self._waiting + came, power * STEP_S / work_s)
        self._waiting += came - done
        self._speed = np.where(works > 0, speed, demand.core_speed[self._rows])
        self._produced, self._read = came / STEP_S, done / STEP_S
        self.shares.append(min(1.0, done / came) if came > 0 else 1.0)
        self.values.append(graph.worth(self._active))
        self.machines.append(len(self._rows))
        self.per_hour.append(float(self._prices().sum()))
        self._step += 1

    def _prices(self) -> Floats:
        return np.array([c.price_per_hour for c in self._demand.classes])[self._rows]

    @property
    def backlog_s(self) -> float:
        """What waits, in seconds of the mean input."""
        return self._waiting / float(self._demand.input_rps.sum())

    @property
    def cores(self) -> int:
        """Cores of all machines."""
        return int(self._demand.cores[self._rows].sum())

    def bill(self) -> float:
        """Money owed so far."""
        return self._spent + self._owed(np.arange(len(self._rows)))

    def _owed(self, rows: Ints) -> float:
        kinds = self._demand.classes
        return float(sum(kinds[self._rows[m]].bill(self.now() - self._began[m]) for m in rows))

    def observe(self) -> Snapshot:
        """The facts of the interval that has passed."""
        if self._step == self._seen:
            raise NotReadyError("no interval has passed")
        self._seen = self._step
        flow, demand, now, kinds = self._flow, self._demand, self.now(), self._demand.classes
        unit = np.array([c.billing_s for c in kinds])[self._rows]
        units = np.maximum(1, np.ceil((now - self._began) / unit - 1e-9))
        share = demand.input_rps / demand.input_rps.sum()
        sources = [flow.row[s.id] for s in flow.sources]
        return Snapshot(
            time_s=now,
            interval_s=STEP_S,
            dataflow=flow,
            nodes=Nodes.blank(
                len(self._rows),
                ids=tuple(map(str, self._serial.tolist())),
                hosts=tuple(map(str, self._serial.tolist())),
                machines=tuple(kinds[k].name for k in self._rows),
                cores=demand.cores[self._rows].astype(np.float64),
                speed=self._speed,
                price_per_hour=self._prices(),
                started_s=self._began,
                paid_until_s=self._began + units * unit,
                ready=self._ready_s <= now + 1e-9,
                known=True,
            ),
            operators=Operators.blank(len(flow.operators), parallelism=ANY_TASK, alternate=self._active),
            alternates=Alternates.blank(0),
            tasks=Tasks.blank(0),
            streams=Streams.blank(len(flow.streams), keep=1.0),
            sources=Sources.blank(
                len(sources),
                operator=sources,
                produced_rps=[self._produced * share[row] for row in sources],
                read_rps=[self._read * share[row] for row in sources],
                backlog_records=[self._waiting * share[row] for row in sources],
                keep=1.0,
                known=True,
            ),
            sinks=Sinks.blank(0),
            constraints=Constraints.blank(len(flow.constraints)),
            classes=kinds,
            cost=self.bill(),
        )

    def apply(self, plan: Plan) -> tuple[Outcome, ...]:
        """All at once: machines that go are paid until now, those that come start."""
        leaving = {p.action.node for p in plan.actions if isinstance(p.action, Release)}
        gone = np.isin(self._serial, [int(n) for n in leaving])
        self._spent += self._owed(np.flatnonzero(gone))
        coming = [p.action for p in plan.actions if isinstance(p.action, Acquire)]
        names = [c.name for c in self._demand.classes]
        fresh = np.repeat([names.index(a.machine) for a in coming], [a.count for a in coming]).astype(
            np.int64
        )
        startup = np.array([c.startup_s for c in self._demand.classes])
        now = np.full(len(fresh), self.now())
        self._rows = np.concatenate([self._rows[~gone], fresh])
        self._began = np.concatenate([self._began[~gone], now])
        self._ready_s = np.concatenate([self._ready_s[~gone], now + startup[fresh]])
        self._speed = np.concatenate([self._speed[~gone], self._demand.core_speed[fresh]])
        self._serial = np.concatenate([self._serial[~gone], self._born + np.arange(len(fresh))])
        self._born += len(fresh)
        return tuple(self._acted(p.action) for p in plan.actions)

    def _acted(self, action: Action) -> Outcome:
        if isinstance(action, Switch):
            row = self._flow.row[action.operator]
            self._active = self._active.copy()
            self._active[row] = self._flow.operators[row].alternate_index(action.target)
            self.switches += 1
        elif not isinstance(action, Acquire | Release):
            reason = Reason(code="unknown-action", facts={"kind": action.kind})
            return Outcome(action=action, status="blocked", reason=reason)
        return Outcome(action=action, status="applied")


class Timed:
    """A policy and the CPU seconds of its decisions."""

    def __init__(self, policy: AnyPolicy) -> None:
        self.name, self._policy = policy.name, policy
        self.spent: list[float] = []

    def start(self, options: Any) -> Any:
        """The policy's memory."""
        return self._policy.start(options)

    def decide(self, snapshot: Snapshot, memory: Any, options: Any) -> tuple[Any, Any]:
        """The policy's decision."""
        began = time.process_time()
        decided = self._policy.decide(snapshot, memory, options)
        self.spent.append(time.process_time() - began)
        return decided


def play(
    rate_rps: float,
    decider: str,
    *,
    rates: Floats,
    speeds: MachineSpeeds,
    options: ProvisioningOptions,
    dataflow: Dataflow | None = None,
    throughput: float = 0.8,
    seed: int = 0,
) -> Course:
    """One run in the loop: deployed for the mean rate, then `rates` (relative, a step each) and `speeds` come.

    `throughput` is what a decider of the paper is asked to keep.
    """
    flow = dataflow or roads()
    demand = roads_demand(rate_rps, dataflow=flow, seed=seed)
    policy: AnyPolicy = Provisioning()
    given: Any = replace(options, rent=True, break_even_per_hour=demand.break_even.full_per_hour)
    first = replace(demand, throughput=FIRST_THROUGHPUT)
    if decider != "best":
        # A tolerance that leaves room above: else what is too much would never be seen.
        tolerance = min(demand.tolerance, 1 - throughput)
        first = replace(demand, throughput=throughput, tolerance=tolerance)
        policy, given = Baseline(decider, first), None
    cloud = Cloud(flow, demand, DECIDERS[decider](first).deployment, rates, speeds)
    timed = Timed(policy)
    loop = Loop(cloud, [PolicyRun(policy=timed, options=given)], clock=cloud, settings=STEADILY)
    loop.run(for_s=len(rates) * STEP_S)
    if loop.faults:
        raise RuntimeError(f"{decider} at {rate_rps:g}/s: the loop survived {dict(loop.faults)}")
    return _course(demand, rate_rps, rates, cloud.shares, cloud.values, cloud.machines, cloud, timed.spent)


def _course(
    demand: Demand,
    rate_rps: float,
    rates: Floats,
    shares: Sequence[float],
    values: Sequence[float],
    machines: Sequence[int],
    cloud: Cloud,
    spent: Sequence[float],
) -> Course:
    cost = cloud.bill()
    return Course(
        throughput=np.array(shares),
        value=np.array(values),
        rate_rps=rate_rps * rates,
        machines=np.array(machines),
        cores=np.full(len(machines), cloud.cores),
        backlog_s=cloud.backlog_s,
        decide_s=np.array(spent),
        switches=cloud.switches,
        cost=cost,
        highest_per_hour=max(cloud.per_hour),
        profit=demand.profit(float(np.mean(values)), cost / (len(rates) * STEP_S / 3600)),
    )


@cache
def deployed(rate_rps: float, decider: str, seed: int = 0) -> tuple[Demand, Provision]:
    """The demand at a mean rate and a decider's answer, found once: some search for seconds."""
    demand = roads_demand(rate_rps, seed=seed)
    return demand, DECIDERS[decider](demand)


def hold(
    rate_rps: float, decider: str, *, rates: Floats, speeds: MachineSpeeds, seed: int = 0
) -> tuple[Floats, float]:
    """(Ω per interval, profit) of one deployment that nothing changes, a core being one operator's."""
    demand, found = deployed(rate_rps, decider, seed)
    graph, deployment = demand.graph, found.deployment
    cost_s, selectivity = graph.of(deployment.alternates)
    bandwidth = np.array([c.bandwidth_bytes_per_s for c in demand.classes])[deployment.machines]
    carried = carried_rps(graph, deployment, bandwidth)
    queued, shares = np.zeros(len(cost_s)), []
    for step, relative in enumerate(rates):
        factor = speeds.of(range(len(deployment.machines)), step)
        power = deployment.power(demand.core_speed[deployment.machines] * factor)
        incoming = demand.input_rps * relative
        processed, queued = advance(
            graph.order, graph.feeds, incoming, cost_s, selectivity, power, carried, queued, STEP_S
        )
        shares.append(mean_share(processed, full_rates(graph, incoming, selectivity), graph.outputs))
    return np.array(shares), found.assessment.profit
