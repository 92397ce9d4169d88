"""The state that the actions so far have asked for. A restarted controller asserts it again."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from penstock.policies.actions import KINDS, Action, Places, Value
from penstock.policies.policy import Proposal
from penstock.policies.reasons import Reason
from penstock.telemetry import Nodes, Snapshot
from penstock.telemetry.metrics import task_row

RECOVERY = "recovery"
"""The policy name under which a restarted controller asserts the old state."""
PLACES = "node"
"""The setting that says where tasks are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Desired:
    """Controls and placement as they should be; what no action has touched is not mentioned.

    Acquired and released nodes are not part of it: after a restart, which nodes there are is a fact, and whether to
    pay for more is a new decision.
    """

    settings: Mapping[str, Mapping[str, Value]] = field(default_factory=dict)
    """Name of a setting (`Action.setting`) to subject to its value. Of places also those of tasks that were left where
    they are when others of their operator were moved."""
    host: Mapping[str, str] = field(default_factory=dict)
    """The host of each node that a task should be on: a restarted engine may give its nodes other names."""

    def __getitem__(self, setting: str) -> Mapping[str, Value]:
        """Subject to value: `desired["keep"]["events"]`; empty where nothing was asked for."""
        return self.settings.get(setting, {})

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
        actions = tuple(actions)
        settings = {name: dict(values) for name, values in self.settings.items()}
        places: Places = {task: str(node) for task, node in self[PLACES].items()}
        if snapshot is not None:
            moved = [a.subject.rpartition("[")[0] for a in actions if a.setting == PLACES]
            places = {**_places(snapshot, moved), **places}
        for action in actions:
            places = action.places_left(places)
        settings[PLACES] = dict(places)
        for action in actions:
            if action.setting is not None and action.value is not None:
                settings.setdefault(action.setting, {})[action.subject] = action.value
        for action in failed:
            mine = settings.get(action.setting or "", {})
            if action.subject in mine and mine[action.subject] == action.value:
                del mine[action.subject]
        hosts = {} if snapshot is None else dict(zip(snapshot.nodes.ids, snapshot.nodes.hosts, strict=False))
        known = {**self.host, **hosts}
        wanted = {str(node) for node in settings[PLACES].values()}
        return Desired(
            settings={name: values for name, values in settings.items() if values},
            host={node: known[node] for node in sorted(wanted) if known.get(node)},
        )

    def missing(self, snapshot: Snapshot) -> Proposal:
        """The actions that bring the world of the snapshot to this state, as far as it still can be."""
        reason, actions = Reason(code="recovered"), list[Action]()
        for kind in KINDS.values():
            for subject, value in self[kind.setting or ""].items():
                wanted = value if kind.setting != PLACES else self._now_called(snapshot.nodes, str(value))
                action = None if wanted is None else kind.restored(subject, wanted, snapshot, reason)
                actions += [] if action is None else [action]
        return Proposal(policy=RECOVERY, actions=tuple(actions))

    def is_answerable(self, snapshot: Snapshot) -> bool:
        """Whether the engine tells of each task where it is, and each node to go back to is there.

        Right after a restart it may not: state that nobody has opened yet has no place, and nodes come one by one.
        """
        for task, node in self[PLACES].items():
            row = task_row(snapshot, task)
            if row is None or snapshot.tasks.node[row] < 0:
                return False
            if self._now_called(snapshot.nodes, str(node)) is None:
                return False
        return True

    def _now_called(self, nodes: Nodes, node: str) -> str | None:
        """The name of the node now: as it was, or that of another one on its host; None if it is not there."""
        row, host = nodes.row.get(node), self.host.get(node)
        if row is not None and host in (None, nodes.hosts[row]):
            return node
        return next(
            (nodes.ids[i] for i, one in enumerate(nodes.hosts) if one == host and host is not None), None
        )


def _places(snapshot: Snapshot, operators: Collection[str]) -> Places:
    """Where the tasks of these operators are, as far as it is known."""
    tasks, ids, places = snapshot.tasks, snapshot.nodes.ids, dict[str, str]()
    rows = {str(id_): row for id_, row in snapshot.dataflow.row.items() if id_ in operators}
    for operator, row in rows.items():
        mine = np.flatnonzero((tasks.operator == row) & (tasks.node >= 0))
        where = zip(tasks.index[mine].tolist(), tasks.node[mine].tolist(), strict=True)
        places.update({f"{operator}[{index}]": ids[node] for index, node in where})
    return places
