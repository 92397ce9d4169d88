"""Hold latency bounds with the fewest tasks per operator: ready before a foreseen rise, quick after any other."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from penstock.arrays import Ints
from penstock.dataflow import OperatorId
from penstock.dataflow.graph import Statistic
from penstock.policies.actions import Action, Cost, Expectation, Scale
from penstock.policies.elasticity.demand import Demand, Learnt, demand_of
from penstock.policies.elasticity.foresight import Foresight
from penstock.policies.elasticity.machines import machines
from penstock.policies.elasticity.options import ElasticityOptions
from penstock.policies.elasticity.pacing import constrained_streams, paces
from penstock.policies.elasticity.sizing import (
    Allowance,
    Limits,
    Sizing,
    drain,
    size,
    size_within,
    waiting_rows,
)
from penstock.policies.elasticity.waits import measured_wait_s
from penstock.policies.policy import Notice, Proposal
from penstock.policies.reasons import Fact, Reason
from penstock.telemetry import Snapshot

TAIL: dict[Statistic, float] = {"mean": 1.0, "p50": math.log(2), "p95": math.log(20), "p99": math.log(100)}
"""How much of a percentile each second of mean wait makes: waits in queues have nearly exponential tails."""
SERVICE: dict[Statistic, float] = {"mean": 1.0, "p50": 0.9, "p95": 1.8, "p99": 2.3}
"""A percentile without any wait, over the mean time the tasks take, before it has been measured."""
STRAINED, SATURATED = 0.8, 0.95
"""Busy shares from which an operator that cannot grow has little, and nothing left."""
NOISE_SIGMAS, LEAST_MARGIN = 2.0, 0.5
"""How much noise of the latency is kept away from the bound, and the least that is planned for all the same."""
FORESEEN = 1.05
"""A demand this much above today's is told as foreseen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ways:
    """How one constraint's latency behaves."""

    base_s: float | None = None
    """A percentile's part that waits do not explain; None: not measured yet, or a mean."""
    mean: float | None = None
    variance: float = 0.0
    """Of the latency over its bound, from interval to interval."""

    def seen(self, latency: float, base_s: float | None) -> Ways:
        """With one interval more, in which the latency was this share of its bound.

        A breach is a matter of capacity, not of noise, and teaches nothing here.
        """
        if latency > 1.5:
            return self
        mean = latency if self.mean is None else self.mean
        ahead = latency - mean
        if base_s is not None and self.base_s is not None:
            base_s = self.base_s + 0.1 * (base_s - self.base_s)
        return Ways(
            base_s=base_s,
            mean=mean + 0.1 * ahead,
            variance=0.95 * self.variance + 0.05 * ahead * ahead,
        )

    def margin(self, most: float) -> float:
        """Share of the bound to plan for, so that what is left covers the noise of `NOISE_SIGMAS`."""
        return min(most, max(LEAST_MARGIN, 1 - NOISE_SIGMAS * math.sqrt(self.variance)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """Tasks that were asked for and do not work yet."""

    operator: str
    time_s: float
    target: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ProactiveMemory:
    """What was learnt of operators and sources, what was needed lately, and what is still starting."""

    operators: tuple[str, ...] = ()
    """Whose rows these are: another dataflow starts afresh."""
    learnt: Learnt | None = None
    foresight: Foresight | None = None
    ways: tuple[Ways, ...] = ()
    """A row per constraint."""
    needed: tuple[tuple[float, tuple[int, ...]], ...] = ()
    """Tasks needed per operator, with the time, oldest first."""
    asked: tuple[Asked, ...] = ()
    startup_s: float | None = None
    """How long tasks were seen to take to start."""
    spare_since_s: float | None = None
    """Since when fewer machines would do."""


class Proactive:
    """As few tasks as hold every latency constraint through the load to come; grows early, shrinks with patience."""

    name = "elasticity"

    def start(self, options: ElasticityOptions) -> ProactiveMemory:
        """Nothing learnt yet."""
        return ProactiveMemory()

    def decide(
        self, snapshot: Snapshot, memory: ProactiveMemory, options: ElasticityOptions
    ) -> tuple[Proposal, ProactiveMemory]:
        """Scale operators, pace streams, and say which bounds cannot be held."""
        memory = _observed(snapshot, memory, options)
        learnt, foresight = memory.learnt, memory.foresight
        if learnt is None or foresight is None or not snapshot.dataflow.constraints:
            return Proposal(policy=self.name), memory
        startup_s = options.task_startup_s if memory.startup_s is None else memory.startup_s
        soon_s = startup_s + snapshot.interval_s
        soon, later = (
            demand_of(
                snapshot,
                learnt,
                foresight.highest_rps(within_s, sigmas=options.caution, most=options.most_caution),
            )
            for within_s in (soon_s, soon_s + options.task_shrink_after_s)
        )
        limits = Limits.of(snapshot)
        allowances = _allowances(snapshot, learnt, memory.ways, options)
        most = affordable_tasks(snapshot, limits, options)
        sized, needed = _sized(soon, allowances, limits, most, options)
        draining = drain(snapshot, soon, allowances, limits, startup_s, options)
        upcoming, _ = _sized(later, allowances, limits, most, options)
        recent = tuple(n for n in memory.needed if n[0] > snapshot.time_s - options.task_shrink_after_s)
        history = (*recent, (snapshot.time_s, tuple(sized.parallelism.tolist())))
        targets = _targets(snapshot, sized, draining, upcoming, history, limits, most, options)
        actions = _scales(snapshot, targets, sized, draining, soon, foresight, soon_s)
        asked = tuple(
            Asked(operator=a.operator or "", time_s=snapshot.time_s, target=a.target)
            for a in actions
            if a.target > a.current and not any(k.operator == a.operator for k in memory.asked)
        )
        notices = sized.notices + _over_budget(snapshot, needed, most, limits)
        rented, spare_since_s = machines(snapshot, targets, memory.spare_since_s, options)
        every: tuple[Action, ...] = (
            *rented,
            *actions,
            *(_paced(snapshot, soon, allowances, limits) if options.batching else ()),
        )
        return Proposal(policy=self.name, actions=every, notices=notices), replace(
            memory, needed=history, asked=memory.asked + asked, spare_since_s=spare_since_s
        )


def affordable_tasks(snapshot: Snapshot, limits: Limits, options: ElasticityOptions) -> int | None:
    """Most tasks that the elastic operators may have together; None: as many as they like.

    One task keeps one core busy; the tasks of other operators are paid first.
    """
    caps = [] if options.max_tasks is None else [options.max_tasks]
    budget, nodes = snapshot.dataflow.goals.budget_per_hour, snapshot.nodes
    price = nodes.price_per_core_hour
    if budget is not None and price > 0:
        fixed = int(snapshot.operators.parallelism[limits.low == limits.high].sum())
        caps.append(max(0, int(budget / price + 1e-9) - fixed))
    return min(caps, default=None)


def _observed(snapshot: Snapshot, memory: ProactiveMemory, options: ElasticityOptions) -> ProactiveMemory:
    flow, sources = snapshot.dataflow, snapshot.sources
    ids = tuple(o.id for o in flow.operators)
    if memory.operators != ids:
        memory = ProactiveMemory(operators=ids, startup_s=memory.startup_s)
    learnt = memory.learnt or Learnt.start(len(flow.operators), len(flow.streams))
    horizon_s = 2 * options.task_startup_s + snapshot.interval_s + options.task_shrink_after_s
    foresight = memory.foresight or Foresight.start(len(sources), step_s=snapshot.step_s, horizon_s=horizon_s)
    produced = np.where(sources.known, sources.produced_rps, np.nan)
    # After a pause of the loop the measured rate stands for all the steps that were missed.
    for _ in range(max(1, round(snapshot.interval_s / foresight.step_s))):
        foresight = foresight.observe(produced)
    ways = memory.ways or (Ways(),) * len(flow.constraints)
    started, startup_s = _started(snapshot, memory)
    return replace(
        memory,
        learnt=learnt.learn(snapshot),
        foresight=foresight,
        ways=tuple(_followed(snapshot, row, way) for row, way in enumerate(ways)),
        asked=started,
        startup_s=startup_s,
    )


def _started(snapshot: Snapshot, memory: ProactiveMemory) -> tuple[tuple[Asked, ...], float | None]:
    """What is still starting, and how long starting takes by now."""
    waiting, startup_s = [], memory.startup_s
    for asked in memory.asked:
        row = snapshot.dataflow.row.get(OperatorId(asked.operator))
        if row is None:
            continue
        took_s = snapshot.time_s - asked.time_s
        if snapshot.operators.parallelism[row] >= asked.target:
            # On average it happened half an interval before it was seen.
            seen_s = max(took_s - snapshot.interval_s / 2, 0.0)
            startup_s = seen_s if startup_s is None else startup_s + 0.3 * (seen_s - startup_s)
        elif took_s < 60:
            waiting.append(asked)
    return tuple(waiting), startup_s


def _followed(snapshot: Snapshot, row: int, before: Ways) -> Ways:
    """What this interval adds to what is known of a constraint."""
    constraint, measured = snapshot.dataflow.constraints[row], snapshot.constraints
    latency_s = float(measured.latency_s[row])
    if not measured.known[row] or not math.isfinite(latency_s):
        return before
    base_s = None
    if constraint.statistic != "mean":
        batches = snapshot.streams.batch_wait_s.mean[list(constrained_streams(snapshot.dataflow, constraint))]
        waits = measured_wait_s(snapshot)[0][list(waiting_rows(snapshot.dataflow, constraint))]
        base_s = max(
            0.0, latency_s - TAIL[constraint.statistic] * float(waits.sum()) - float(np.nansum(batches))
        )
    return before.seen(latency_s / (constraint.bound_ms / 1e3), base_s)


def _allowances(
    snapshot: Snapshot, learnt: Learnt, ways: tuple[Ways, ...], options: ElasticityOptions
) -> tuple[Allowance, ...]:
    """What each constraint with traffic allows."""
    flow, found = snapshot.dataflow, []
    for constraint, way in zip(flow.constraints, ways, strict=True):
        rows = waiting_rows(flow, constraint)
        if not rows or not np.any(learnt.service_s.count[list(rows)] > 0):
            continue  # no traffic: nothing is late, and nothing is known
        inside = [flow.row[o] for o in constraint.sequence.operators if o in flow.row]
        base_s = SERVICE[constraint.statistic] * float(learnt.task_latency_s()[inside].sum())
        if way.base_s is not None:
            base_s = way.base_s
        slack_s = way.margin(options.margin) * constraint.bound_ms / 1e3 - base_s
        tail = TAIL[constraint.statistic]
        found.append(
            Allowance(
                constraint=constraint,
                rows=rows,
                slack_s=slack_s,
                tail=tail,
                wait_s=options.wait_share * slack_s / tail,
            )
        )
    return tuple(found)


def _sized(
    demand: Demand,
    allowances: tuple[Allowance, ...],
    limits: Limits,
    most: int | None,
    options: ElasticityOptions,
) -> tuple[Sizing, int]:
    if most is None:
        sized = size(demand, allowances, limits, options)
        return sized, int(sized.parallelism.sum())
    return size_within(most, demand, allowances, limits, options)


def _targets(
    snapshot: Snapshot,
    sized: Sizing,
    draining: Sizing,
    upcoming: Sizing,
    history: tuple[tuple[float, tuple[int, ...]], ...],
    limits: Limits,
    most: int | None,
    options: ElasticityOptions,
) -> Ints:
    """Tasks to have: growth at once; shrinking to the most that was needed lately and will be soon."""
    current = snapshot.operators.parallelism
    constrained = sized.parallelism > 0
    now = np.maximum(sized.parallelism, draining.parallelism)
    if most is not None and int(now[constrained].sum()) > most:
        now = sized.parallelism  # a backlog is no reason to spend more than allowed
    lately = np.max([n for _, n in history], axis=0)
    enough = np.maximum(np.maximum(now, lately), upcoming.parallelism)
    if most is not None and int(enough[constrained].sum()) > most:
        enough = now
    patient = snapshot.time_s - history[0][0] >= options.task_shrink_after_s - 1.5 * snapshot.interval_s
    # Nothing is given back while a backlog is worked off: that would only prolong it.
    calm = (patient & (draining.parallelism == 0)) | (most is not None)
    fewer = np.where(calm, np.minimum(enough, current), current)
    return np.where(
        constrained, np.clip(np.where(now > current, now, fewer), limits.low, limits.high), current
    )


def _scales(
    snapshot: Snapshot,
    targets: Ints,
    sized: Sizing,
    draining: Sizing,
    demand: Demand,
    foresight: Foresight,
    within_s: float,
) -> tuple[Scale, ...]:
    actions = []
    view, price = snapshot.by_operator, snapshot.nodes.price_per_core_hour
    for row in np.flatnonzero(targets != snapshot.operators.parallelism).tolist():
        operator = snapshot.dataflow.operators[row]
        current, target = int(snapshot.operators.parallelism[row]), int(targets[row])
        basis = sized.reasons.get(row, Reason(code="load-needs-tasks"))
        goal = sized.goals.get(row)
        arrives = float(view.arrival_rps[row])
        ahead = float(demand.shared_rps[row] + demand.each_rps[row] * current)
        if target < current:
            reason = Reason(code="fewer-tasks-suffice", facts=basis.facts)
        elif row in draining.reasons and target > sized.parallelism[row]:
            reason, goal = draining.reasons[row], draining.goals[row]
        elif ahead > FORESEEN * arrives:
            facts: dict[str, Fact] = {"rate_rps": arrives, "foreseen_rps": ahead, "within_s": within_s}
            if foresight.season_steps:
                facts["season_s"] = foresight.season_steps * foresight.step_s
            reason = Reason(code="foreseen-load", facts={**basis.facts, **facts})
        else:
            reason = basis
        actions.append(
            Scale(
                operator=operator.id,
                current=current,
                target=target,
                reason=reason,
                goal=goal,
                expects=Expectation(
                    metric="parallelism",
                    subject=operator.id,
                    value=float(target),
                    within_s=within_s + 2 * snapshot.interval_s,
                ),
                cost=Cost(per_hour=(target - current) * price),
            )
        )
    return tuple(actions)


def _paced(
    snapshot: Snapshot,
    demand: Demand,
    allowances: tuple[Allowance, ...],
    limits: Limits,
) -> tuple[Action, ...]:
    """Deadlines that use what queues leave of each constraint."""
    current = snapshot.operators.parallelism
    measured, known = measured_wait_s(snapshot)
    predicted = demand.waits.at(current)
    batching: dict[str, float] = {}
    strained, saturated = set(), set()
    for allowance in allowances:
        rows = list(allowance.rows)
        waits = np.where(known[rows], np.maximum(measured[rows], np.minimum(predicted[rows], 1.0)), 0.0)
        batching[allowance.constraint.name] = allowance.slack_s - allowance.tail * float(waits.sum())
        load = demand.waits.b[rows] / np.maximum(current[rows], 1)
        busy = np.fmax(snapshot.by_operator.utilisation[rows], load)[current[rows] >= limits.high[rows]]
        if np.any(busy >= STRAINED):
            strained.add(allowance.constraint.name)
        if np.any(busy >= SATURATED):
            saturated.add(allowance.constraint.name)
    return paces(snapshot, batching, strained=strained, saturated=saturated)


def _over_budget(snapshot: Snapshot, needed: int, most: int | None, limits: Limits) -> tuple[Notice, ...]:
    if most is None or needed <= most:
        return ()
    facts: dict[str, Fact] = {"tasks_needed": needed, "tasks_affordable": most}
    budget = snapshot.dataflow.goals.budget_per_hour
    helps = f"{needed} tasks instead of {most}, a higher bound, a cheaper alternate, or shedding"
    if budget is not None:
        nodes = snapshot.nodes
        fixed = int(snapshot.operators.parallelism[limits.low == limits.high].sum())
        enough = float(nodes.price_per_hour.sum() / nodes.cores.sum()) * (needed + fixed)
        if enough > budget:
            facts["budget_needed_per_hour"] = enough
            helps = f"a budget of {enough:.4g} per hour, a higher bound, a cheaper alternate, or shedding"
    return (Notice(goal="budget", reason=Reason(code="over-budget", facts=facts), helps=helps),)
