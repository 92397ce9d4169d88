"""What each executor is good for, and which ones go first when there are too many."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Literal

from penstock.spark.internals.executors import Executor

WARM_S = 20.0
"""An executor that has finished no task counts as starting for this long; later it just had none to run."""
UP_S = 120.0
"""A block manager that is not up after this long will not come."""
SILENT_S = 35.0
"""Three missed heartbeats of Spark's default interval: the executor, or the way to it, is in trouble."""

State = Literal["usable", "starting", "draining", "leaving", "unusable"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutorView:
    """One executor: its state, why if it is not usable, and since when on the pool's clock."""

    executor: Executor
    state: State
    reason: str | None = None
    since_s: float = 0.0

    @property
    def id(self) -> str:
        """Spark's name of it."""
        return self.executor.id

    @property
    def counts(self) -> bool:
        """Whether it is capacity, now or soon."""
        return self.state in ("usable", "starting")


def judged(
    executor: Executor, *, age_s: float, draining: Collection[str], leaving: Collection[str]
) -> tuple[State, str | None]:
    """The state of an executor that has been known for `age_s`, and the reason if it is no use."""
    if executor.id in leaving:
        return "leaving", None
    if executor.is_excluded:
        return "unusable", "excluded by Spark's health tracker: too many tasks failed there"
    if not executor.takes_tasks:
        return "unusable", "Spark gives it no tasks: decommissioned or lost"
    if executor.heartbeat_age_s is not None and executor.heartbeat_age_s > SILENT_S:
        return "unusable", f"no heartbeat for {executor.heartbeat_age_s:.0f} s"
    if not executor.has_block_manager and age_s > UP_S:
        return "unusable", f"its block manager is not up after {age_s:.0f} s"
    if executor.id in draining:
        return "draining", None
    if not executor.has_block_manager or (executor.completed_tasks == 0 and age_s < WARM_S):
        return "starting", None
    return "usable", None


def chosen_to_go(
    candidates: Collection[ExecutorView],
    count: int,
    *,
    first: Collection[str],
    state_weight: Mapping[str, float],
) -> frozenset[str]:
    """The `count` executors to remove: those in `first`, then starting ones, those with the least state, the youngest.

    One usable executor always stays, whatever is asked.
    """

    def order(view: ExecutorView) -> tuple[bool, bool, float, tuple[int, str]]:
        weight = state_weight.get(view.id, 0.0)
        return view.id not in first, view.state != "starting", weight, _youngest(view.id)

    going = sorted(candidates, key=order)[: max(0, count)]
    staying = [v for v in candidates if v not in going]
    if not any(v.state in ("usable", "draining") for v in staying):
        # The last one in the order of leaving that works is the one to keep.
        keeper = next((v for v in reversed(going) if v.state in ("usable", "draining")), None)
        going = [v for v in going if v is not keeper]
    return frozenset(v.id for v in going)


def _youngest(executor_id: str) -> tuple[int, str]:
    """Executors are numbered as they come; the highest number sorts first."""
    return (-int(executor_id) if executor_id.isdigit() else 1, executor_id)
