"""The paper's method: resolve bottlenecks, else rebalance, constraint by constraint (`nephele.txt`, section IV)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from penstock.arrays import Ints
from penstock.dataflow import OperatorId
from penstock.policies.actions import Action, Expectation, Scale
from penstock.policies.elasticity.pacing import paces
from penstock.policies.elasticity.rebalance import rebalance
from penstock.policies.elasticity.sizing import waiting_rows
from penstock.policies.elasticity.waits import Waits, kingman_wait_s, measured_wait_s
from penstock.policies.policy import Notice, Proposal
from penstock.policies.reasons import Fact, Reason
from penstock.telemetry import Snapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class ReactiveOptions:
    """Options of the paper's method, with the paper's values."""

    wait_share: float = 0.2
    """Share (0..1) of the bound, less task latencies, that may be spent waiting; the rest is for batching."""
    bottleneck: float = 0.95
    """Utilisation (0..1) from which an operator counts as a bottleneck."""
    rest_intervals: int = 2
    """Adjustment intervals after a scale-up within which nothing is decided: 10 s at the paper's cadence of 5 s."""
    batching: bool = True
    """Whether output batches take what is left of the bounds."""
    batching_margin: float = 0.9
    """Share (0..1) of a bound that batches may fill up to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReactiveMemory:
    """When the policy may act again."""

    rest_until_s: float = float("-inf")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Targets:
    """Parallelism wanted per operator (that of today where no constraint asks), why, and what cannot be had."""

    parallelism: Ints
    reasons: dict[int, Reason]
    goals: dict[int, str]
    """Operator to the constraint that asks for its tasks."""
    notices: tuple[Notice, ...]
    expected_wait_s: dict[int, float]


class Reactive:
    """ScaleReactively: hold every latency constraint with the fewest tasks, from the last interval alone."""

    name = "nephele"
    options_type = ReactiveOptions

    def start(self, options: ReactiveOptions) -> ReactiveMemory:
        """No rest at first."""
        return ReactiveMemory()

    def decide(
        self, snapshot: Snapshot, memory: ReactiveMemory, options: ReactiveOptions
    ) -> tuple[Proposal, ReactiveMemory]:
        """Scale the constrained operators; rest after growing."""
        pacing = batch_deadlines(snapshot, options) if options.batching else ()
        # The bounds of floating point time, not a tolerance: intervals are seconds long.
        if snapshot.time_s < memory.rest_until_s - 1e-9:
            return Proposal(policy=self.name, actions=pacing), memory
        targets = constrained_targets(snapshot, fit_waits(snapshot), options)
        actions = scale_actions(snapshot, targets)
        grew = any(isinstance(a, Scale) and a.target > a.current for a in actions)
        rest = snapshot.time_s + options.rest_intervals * snapshot.interval_s if grew else memory.rest_until_s
        proposal = Proposal(policy=self.name, actions=(*actions, *pacing), notices=targets.notices)
        return proposal, ReactiveMemory(rest_until_s=rest)


def fit_waits(snapshot: Snapshot) -> Waits:
    """The waits of every operator as the snapshot shows them; operators nobody measured or used wait 0."""
    view = snapshot.by_operator
    p = snapshot.operators.parallelism.astype(np.float64)
    service, arrivals = view.service_s, view.interarrival_s
    rate = np.where(p > 0, view.arrival_rps / np.where(p > 0, p, 1.0), 0.0)
    used = view.known & (rate > 0) & (service.mean > 0) & np.isfinite(rate) & np.isfinite(service.mean)
    rho = np.where(used, rate * service.mean, 0.0)
    # A task that saw fewer than two gaps has no cA; arrivals of many independent sources tend to Poisson (1).
    ca2 = np.where((arrivals.count > 1) & np.isfinite(arrivals.cv2), arrivals.cv2, 1.0)
    cs2 = np.where(np.isfinite(service.cv2), service.cv2, 1.0)
    mean = np.where(used, service.mean, 0.0)
    model = kingman_wait_s(rho, mean, ca2, cs2)
    measured, was_measured = measured_wait_s(snapshot)
    fits = used & was_measured & np.isfinite(model) & (model > 0)
    e = np.where(fits, measured / np.where(fits, model, 1.0), 1.0)
    a = np.where(used, e * rate * mean**2 * p * (ca2 + cs2) / 2, 0.0)
    return Waits(a, np.where(used, rho * p, 0.0))


def constrained_targets(snapshot: Snapshot, waits: Waits, options: ReactiveOptions) -> Targets:
    """What each constraint needs; a later one only raises what an earlier one chose."""
    flow, view = snapshot.dataflow, snapshot.by_operator
    current = snapshot.operators.parallelism.copy()
    low = np.array([o.parallelism.minimum for o in flow.operators], dtype=np.int64)
    high = np.array([o.parallelism.maximum for o in flow.operators], dtype=np.int64)
    elastic = snapshot.operators.elastic & (low < high)
    low, high = np.where(elastic, low, current), np.where(elastic, high, current)
    task_latency = np.where(np.isfinite(view.latency_s.mean), view.latency_s.mean, 0.0)
    wanted: dict[int, int] = {}
    reasons: dict[int, Reason] = {}
    goals: dict[int, str] = {}
    expected: dict[int, float] = {}
    notices: list[Notice] = []
    for number, constraint in enumerate(flow.constraints):
        rows = np.array(waiting_rows(flow, constraint), dtype=np.int64)
        if not rows.size or not bool(np.any(view.known[rows] & (view.arrived[rows] > 0))):
            continue  # no traffic: nothing is late, and nothing is known
        bottlenecks = rows[waits.b[rows] / current[rows] >= options.bottleneck]
        if bottlenecks.size:
            for row in bottlenecks:
                demand = 2 * waits.b[row]
                target = min(int(high[row]), max(2 * int(current[row]), int(np.ceil(demand))))
                _raise(wanted, int(row), target)
                facts: dict[str, Fact] = {
                    "utilisation": float(waits.b[row] / current[row]),
                    "constraint": constraint.name,
                }
                if target > current[row]:
                    reasons[int(row)] = Reason(code="bottleneck", facts=facts)
                    goals[int(row)] = constraint.name
                else:
                    reached = Reason(code="bottleneck-at-limit", facts={**facts, "limit": int(high[row])})
                    notices.append(
                        Notice(
                            goal=constraint.name,
                            reason=reached,
                            helps=f"a higher maximum for {flow.operators[row].id}, or less load",
                        )
                    )
            continue
        slack_s = constraint.bound_ms / 1e3 - float(task_latency[rows].sum())
        budget_s = options.wait_share * slack_s
        floor = np.array([max(int(low[r]), wanted.get(int(r), 0)) for r in rows], dtype=np.int64)
        found = rebalance(waits.take(rows), np.minimum(floor, high[rows]), high[rows], budget_s)
        if not found.feasible:
            notices.append(_infeasible(constraint.name, slack_s, budget_s, found.wait_s))
        for row, p in zip(rows, found.parallelism, strict=True):
            _raise(wanted, int(row), int(p))
            expected[number] = found.wait_s
            goals.setdefault(int(row), constraint.name)
            reasons.setdefault(
                int(row),
                Reason(
                    code="rebalance",
                    facts={
                        "constraint": constraint.name,
                        "bound_ms": constraint.bound_ms,
                        "predicted_wait_ms": 1e3 * found.wait_s,
                        "allowed_wait_ms": 1e3 * budget_s,
                    },
                ),
            )
    parallelism = current.copy()
    for row, p in wanted.items():
        parallelism[row] = p
    return Targets(
        parallelism=parallelism,
        reasons=reasons,
        goals=goals,
        notices=tuple(notices),
        expected_wait_s=expected,
    )


def batch_deadlines(snapshot: Snapshot, options: ReactiveOptions) -> tuple[Action, ...]:
    """Output batching as the primary means: batches may wait for what tasks and queues leave of each bound."""
    flow = snapshot.dataflow
    task_s = snapshot.by_operator.latency_s.mean
    wait_s, measured = measured_wait_s(snapshot)
    left: dict[str, float] = {}
    for constraint in flow.constraints:
        inside = [flow.row[o] for o in constraint.sequence.operators]
        rows = list(waiting_rows(flow, constraint))
        if np.any(measured[rows]):
            used_s = np.nansum(task_s[inside]) + wait_s[rows].sum()
            left[constraint.name] = options.batching_margin * constraint.bound_ms / 1e3 - float(used_s)
    return paces(snapshot, left)


def scale_actions(snapshot: Snapshot, targets: Targets) -> tuple[Action, ...]:
    """The actions that lead from today's parallelism to the targets."""
    current = snapshot.operators.parallelism
    return tuple(
        Scale(
            operator=OperatorId(snapshot.dataflow.operators[row].id),
            current=int(current[row]),
            target=int(targets.parallelism[row]),
            reason=targets.reasons[row],
            goal=targets.goals.get(row),
            expects=Expectation(
                metric="parallelism",
                subject=snapshot.dataflow.operators[row].id,
                value=float(targets.parallelism[row]),
                within_s=3 * snapshot.interval_s,
            ),
        )
        for row in sorted(targets.reasons)
        if targets.parallelism[row] != current[row]
    )


def _raise(wanted: dict[int, int], row: int, target: int) -> None:
    wanted[row] = max(wanted.get(row, 0), target)


def _infeasible(constraint: str, slack_s: float, budget_s: float, wait_s: float) -> Notice:
    if slack_s <= 0:
        return Notice(
            goal=constraint,
            reason=Reason(code="tasks-slower-than-bound", facts={"over_by_ms": -1e3 * slack_s}),
            helps="a cheaper alternate, faster nodes, or a bound above the time the tasks themselves take",
        )
    return Notice(
        goal=constraint,
        reason=Reason(
            code="bound-out-of-reach",
            facts={"wait_at_maximum_ms": 1e3 * wait_s, "allowed_wait_ms": 1e3 * budget_s},
        ),
        helps="a higher maximum parallelism, a cheaper alternate, or a bound at least "
        f"{1e3 * (wait_s - budget_s):.3g} ms above",
    )
