"""The state that the actions so far have asked for. A restarted controller asserts it again."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from penstock.control.effects import read, task_row
from penstock.dataflow import OperatorId
from penstock.policies.actions import Acquire, Action, Move, Pace, Release, Scale, Shed, Switch
from penstock.policies.policy import Proposal
from penstock.policies.reasons import Reason
from penstock.telemetry import Nodes, Snapshot

RECOVERY = "recovery"
"""The policy name under which a restarted controller asserts the old state."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Desired:
    """Controls and placement as they should be; what no action has touched is not mentioned.

    Acquired and released nodes are not part of it: after a restart, which nodes there are is a fact, and whether to
    pay for more is a new decision.
    """

    parallelism: Mapping[str, int] = field(default_factory=dict)
    alternate: Mapping[str, str] = field(default_factory=dict)
    keep: Mapping[str, float] = field(default_factory=dict)
    deadline_s: Mapping[str, float] = field(default_factory=dict)
    node: Mapping[str, str] = field(default_factory=dict)
    """Task to the node it was moved to, or was left on when others of its operator were moved."""
    host: Mapping[str, str] = field(default_factory=dict)
    """The host of each of those nodes: a restarted engine may give its nodes other names."""

    def after(
        self,
        actions: Iterable[Action],
        failed: Iterable[Action] = (),
        snapshot: Snapshot | None = None,
    ) -> Desired:
        """With what the actions ask for, and without what turned out not to work.

        The snapshot that they were decided on tells where the rest was: who moves some tasks of an operator has
        decided to leave the others where they are, and a restarted engine may put those anywhere.
        """
        tables: dict[str, dict[str, Any]] = {
            name: dict(getattr(self, name))
            for name in ("parallelism", "alternate", "keep", "deadline_s", "node")
        }
        actions = tuple(actions)
        if any(isinstance(a, Acquire) or (isinstance(a, Scale) and a.operator is None) for a in actions):
            tables["node"] = {}  # the engine spreads its tasks over the nodes that there are then
        elif snapshot is not None:
            moved = {a.operator for a in actions if isinstance(a, Move)}
            tables["node"] = {**_places(snapshot, moved), **tables["node"]}
        for action in actions:
            entry = _entry(action)
            if entry is not None:
                tables[entry[0]][entry[1]] = entry[2]
            if isinstance(action, Release):
                tables["node"] = {task: node for task, node in tables["node"].items() if node != action.node}
            if isinstance(action, Scale) and action.operator is not None:
                # Tasks beyond the new size are gone; should they come back, they may be placed anywhere.
                gone = f"{action.operator}["
                tables["node"] = {
                    task: node
                    for task, node in tables["node"].items()
                    if not task.startswith(gone) or int(task[len(gone) : -1]) < action.target
                }
        for action in failed:
            entry = _entry(action)
            if entry is not None and tables[entry[0]].get(entry[1]) == entry[2]:
                del tables[entry[0]][entry[1]]
        hosts = {} if snapshot is None else dict(zip(snapshot.nodes.ids, snapshot.nodes.hosts, strict=False))
        known = {**self.host, **hosts}
        tables["host"] = {node: known[node] for node in set(tables["node"].values()) if known.get(node)}
        return Desired(**tables)

    def missing(self, snapshot: Snapshot) -> Proposal:
        """The actions that bring the world of the snapshot to this state, as far as it still can be."""
        dataflow, reason = snapshot.dataflow, Reason(code="recovered")
        actions: list[Action] = []
        for task, node in self.node.items():
            row, to = task_row(snapshot, task), self._row(snapshot.nodes, node)
            if row is None or to is None or snapshot.nodes.draining[to]:
                continue
            at = snapshot.tasks.node[row]
            if at >= 0 and at != to and not snapshot.tasks.moving[row]:
                operator = dataflow.operators[snapshot.tasks.operator[row]].id
                actions.append(
                    Move(
                        reason=reason,
                        operator=operator,
                        index=int(snapshot.tasks.index[row]),
                        source=snapshot.nodes.ids[at],
                        target=snapshot.nodes.ids[to],
                    )
                )
        for operator_id, name in self.alternate.items():
            id_ = OperatorId(operator_id)
            row = dataflow.row.get(id_)
            if row is None:
                continue
            alternates = dataflow.operators[row].alternates
            current = alternates[snapshot.operators.alternate[row]].name
            if current != name and name in {a.name for a in alternates}:
                actions.append(Switch(reason=reason, operator=id_, current=current, target=name))
        for subject, target in self.parallelism.items():
            size = read(snapshot, "parallelism", subject)
            if size is not None and int(size) != target:
                operator_or_nodes = None if subject == "nodes" else OperatorId(subject)
                actions.append(
                    Scale(reason=reason, operator=operator_or_nodes, current=int(size), target=target)
                )
        for subject, keep in self.keep.items():
            now = read(snapshot, "keep", subject)
            if now is not None and now != keep:
                operator, _, to_operator = subject.partition("->")
                actions.append(
                    Shed(
                        reason=reason,
                        operator=OperatorId(operator),
                        target=OperatorId(to_operator) if to_operator else None,
                        keep=keep,
                    )
                )
        actions += [
            Pace(reason=reason, stream=None if stream == "batches" else stream, deadline_s=deadline_s)
            for stream, deadline_s in self.deadline_s.items()
        ]
        return Proposal(policy=RECOVERY, actions=tuple(actions))

    def is_answerable(self, snapshot: Snapshot) -> bool:
        """Whether the engine tells of each task where it is, and each node to go back to is there.

        Right after a restart it may not: state that nobody has opened yet has no place, and nodes come one by one.
        """
        for task, node in self.node.items():
            row = task_row(snapshot, task)
            if row is None or snapshot.tasks.node[row] < 0 or self._row(snapshot.nodes, node) is None:
                return False
        return True

    def _row(self, nodes: Nodes, node: str) -> int | None:
        """Where the node is now: under its name, or another one on its host."""
        row, host = nodes.row.get(node), self.host.get(node)
        if host is None or (row is not None and nodes.hosts[row] == host):
            return row
        return next((i for i, one in enumerate(nodes.hosts) if one == host), None)


def _places(snapshot: Snapshot, operators: Collection[OperatorId]) -> dict[str, str]:
    """Where the tasks of these operators are, as far as it is known."""
    tasks, ids = snapshot.tasks, snapshot.nodes.ids
    places = {}
    for operator in operators:
        mine = np.flatnonzero((tasks.operator == snapshot.dataflow.row[operator]) & (tasks.node >= 0))
        where = zip(tasks.index[mine].tolist(), tasks.node[mine].tolist(), strict=True)
        places.update({f"{operator}[{index}]": ids[node] for index, node in where})
    return places


def _entry(action: Action) -> tuple[str, str, Any] | None:
    match action:
        case Scale():
            return "parallelism", action.subject, action.target
        case Switch():
            return "alternate", action.subject, action.target
        case Shed():
            return "keep", action.subject, action.keep
        case Pace():
            return "deadline_s", action.subject, action.deadline_s
        case Move():
            return "node", action.subject, action.target
        case _:
            return None
