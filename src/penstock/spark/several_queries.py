"""Several applications in one Spark application: a query each, one controller for all.

Each connected part of a dataflow is an application and runs as a query of its own, with its own micro-batches and
checkpoint, so that a slow one does not hold up the others. They share the executors; what each uses is measured per
operator, and a policy sees all of them in one snapshot.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from penstock.control.plan import NotReadyError, Outcome, Plan
from penstock.dataflow import Dataflow, OperatorId, applications
from penstock.policies.actions import Action, Limit, Move, Pace, Scale, Shed, Switch
from penstock.policies.reasons import Reason
from penstock.spark.internals.capabilities import Capabilities
from penstock.spark.launch import launch
from penstock.spark.observe.machine_load import HostWatch
from penstock.spark.runtime import DEFAULTS, RuntimeOptions, SparkRuntime, Usage
from penstock.telemetry import Snapshot, joined


class SharedRuntime:
    """The applications of one dataflow as one runtime."""

    def __init__(
        self,
        dataflow: Dataflow,
        parts: Sequence[SparkRuntime],
        hosts: HostWatch,
    ) -> None:
        self.dataflow, self.parts, self._hosts = dataflow, tuple(parts), hosts
        self._part_of = {o.id: part for part in self.parts for o in part.dataflow.operators}

    def observe(self) -> Snapshot:
        """The facts since the last call; an application without a finished batch has none yet."""
        if not any(part.has_begun() for part in self.parts):
            raise NotReadyError("no micro-batch of any application has ended yet")
        seen = [part.observe() for part in self.parts]
        # The last one looked has the samples of hosts that tasks of all queries brought.
        whole = joined(self.dataflow, seen, seen[-1].nodes)
        # Batches of different queries end at different times: what was used and has not been told of by the end of a
        # batch is not Spark's own use. That one is averaged over a longer time.
        beside = np.array([self._hosts.beside(id_) for id_ in whole.nodes.ids])
        return replace(whole, nodes=whole.nodes.with_columns(own_cpu=whole.node_cpu + beside))

    def apply(self, plan: Plan) -> tuple[Outcome, ...]:
        """Hand each application its actions; executors belong to all of them and are left as they are."""
        mine = [self._owner(planned.action) for planned in plan.actions]
        outcomes: dict[int, Outcome] = {}
        decided: list[Outcome] = []
        for part in self.parts:
            rows = [i for i, owner in enumerate(mine) if owner is part]
            told = part.apply(replace(plan, actions=tuple(plan.actions[i] for i in rows)))
            outcomes.update(zip(rows, told, strict=False))
            decided.extend(told[len(rows) :])
        for i, owner in enumerate(mine):
            if owner is None:
                cause = "several applications share the executors and their pace"
                reason = Reason(code="not-shared", facts={"cause": cause})
                outcomes[i] = Outcome(action=plan.actions[i].action, status="blocked", reason=reason)
        return (*(outcomes[i] for i in range(len(mine))), *decided)

    def _owner(self, action: Action) -> SparkRuntime | None:
        match action:
            case Shed() | Switch() | Move() | Limit() | Scale(operator=str()):
                return self._part_of.get(OperatorId(action.operator or ""))
            case Pace(query=str(name)):
                return next((p for p in self.parts if p.dataflow.name == name), None)
            case _:
                return None

    @property
    def queries(self) -> tuple[StreamingQuery, ...]:
        """One for each application, in the order of `parts`."""
        return tuple(part.query for part in self.parts)

    @property
    def capabilities(self) -> Capabilities:
        """What this Spark can do."""
        return self.parts[0].capabilities

    @property
    def usage(self) -> Usage:
        """What was done since the start, by all of them on the same executors."""
        each = [part.usage for part in self.parts]
        return Usage(
            batches=sum(u.batches for u in each),
            records_in=sum(u.records_in for u in each),
            executor_seconds=max(u.executor_seconds for u in each),
        )

    def has_begun(self) -> bool:
        """Whether every application has finished a micro-batch."""
        return all(part.has_begun() for part in self.parts)

    def query_is_active(self) -> bool:
        """Whether there is something left to steer."""
        return any(part.query_is_active() for part in self.parts)

    def failure(self) -> BaseException | None:
        """What ended one of the queries, if it did not end by itself."""
        return next(filter(None, (part.failure() for part in self.parts)), None)

    def stop(self) -> None:
        """Stop all queries."""
        for part in self.parts:
            part.stop()

    def close(self) -> None:
        """Stop steering; the queries are left as they are."""
        for part in self.parts:
            part.close()


def launch_shared(
    spark: SparkSession,
    dataflow: Dataflow,
    *,
    checkpoint: Path | str,
    trigger_s: float = 0.0,
    controls: Mapping[str, Any] | None = None,
    audit: float = 0.0,
    options: RuntimeOptions = DEFAULTS,
) -> SharedRuntime:
    """Start each application of the dataflow (`together` makes one of several) as a query of its own.

    Each has a folder under `checkpoint`, by its name. If one cannot be started, none runs.
    """
    hosts, parts = HostWatch(), list[SparkRuntime]()
    try:
        for application in applications(dataflow):
            ids = {o.id for o in application.operators} | {s.id for s in application.streams}
            parts.append(
                launch(
                    spark,
                    application,
                    checkpoint=Path(checkpoint) / application.name,
                    trigger_s=trigger_s,
                    controls={k: v for k, v in (controls or {}).items() if k.partition(":")[2] in ids},
                    audit=audit,
                    options=options,
                    hosts=hosts,
                )
            )
    except BaseException:
        for part in parts:
            part.stop()
            part.close()
        raise
    return SharedRuntime(dataflow, parts, hosts)
