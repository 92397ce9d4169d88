"""The state that the actions so far have asked for. A restarted controller asserts it again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from penstock.control.effects import read, task_row
from penstock.dataflow import OperatorId
from penstock.policies.proposal import Action, Move, Pace, Proposal, Reason, Release, Scale, Shed, Switch
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
    """Task to the node it was moved to."""
    host: Mapping[str, str] = field(default_factory=dict)
    """The host of each of those nodes: a restarted engine may give its nodes other names."""

    def after(
        self,
        actions: Iterable[Action],
        failed: Iterable[Action] = (),
        hosts: Mapping[str, str] | None = None,
    ) -> Desired:
        """With what the actions ask for, and without what turned out not to work; `hosts` of nodes as they are now."""
        tables: dict[str, dict[str, Any]] = {
            name: dict(getattr(self, name))
            for name in ("parallelism", "alternate", "keep", "deadline_s", "node")
        }
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
        known = {**self.host, **(hosts or {})}
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
            if at >= 0 and at != to:
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

    def _row(self, nodes: Nodes, node: str) -> int | None:
        """Where the node is now: under its name, or another one on its host."""
        row, host = nodes.row.get(node), self.host.get(node)
        if host is None or (row is not None and nodes.hosts[row] == host):
            return row
        return next((i for i, one in enumerate(nodes.hosts) if one == host), None)


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
