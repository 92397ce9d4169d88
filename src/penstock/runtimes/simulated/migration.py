"""The migration of one stateful computation, message by message, under delays and deaths (`neptune.txt`, section 4.2).

An empty instance at the target; the sender stops that one stream, buffers, and says the last sequence number; the old
instance drains to it, saves and sends its state; the new one restores it; the sender plays its buffer; the old ends.

What makes it safe when somebody dies: results and state are saved together, by the one instance that owns the stream
(a growing epoch tells which: a late instance of an older epoch can save nothing), and the sender keeps what has not
been saved yet. So whoever takes over begins after what was saved. Control messages have a channel of their own.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

Draw = Callable[[], float]
"""A delay in seconds, at least 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MigrationOptions:
    """How fast things are, and how much is kept."""

    period_s: float = 0.01
    """Between two messages of the sender."""
    service_s: float = 0.004
    """Processing of one."""
    buffer_messages: int = 50
    """What the sender buffers for a paused stream before it stops altogether (1 or more)."""
    save_every: int = 7
    """Messages between two saves of state and results (1 or more)."""
    state_bytes: float = 1e6
    bandwidth_bps: float = 125e6
    deploy_s: float = 0.01
    """Until an empty instance is there."""
    detect_s: float = 0.05
    """Until a death is noticed."""


@dataclass(slots=True)
class Saved:
    """What survives deaths: results in order, the state they belong to, and who may save."""

    results: list[tuple[int, int]] = field(default_factory=list)
    """(sequence number, running sum after it): the sum is the state, and shows order and completeness."""
    epoch: int = 0
    state: int = 0

    @property
    def number(self) -> int:
        """The last message that counts."""
        return self.results[-1][0] if self.results else 0


@dataclass(slots=True)
class Instance:
    """The computation on one node."""

    node: str
    epoch: int
    number: int = 0
    state: int = 0
    ready: bool = False
    drain_to: int | None = None
    queue: deque[int] = field(default_factory=deque)
    unsaved: list[tuple[int, int]] = field(default_factory=list)
    busy: bool = False
    ended: bool = False
    line: int = 0
    """Epoch of the line that messages come on."""


class Migration:
    """A sender, a computation, an orchestrator and nodes that may die; `run` lets it all happen."""

    def __init__(self, options: MigrationOptions, delay: Draw, *, messages: int) -> None:
        self.options, self._delay, self._messages = options, delay, messages
        self.now_s, self._asked = 0.0, 0
        self._agenda: list[tuple[float, int, Callable[[], None]]] = []
        self._lines: dict[tuple[str, int], float] = {}
        """When the last data message of a line arrives: data never overtakes data."""
        self.dead: set[str] = set()
        self.saved = Saved()
        self.owner = Instance("old", 0, ready=True)
        self.newcomer: Instance | None = None
        self._owners = [self.owner]
        """All that own or have owned the stream."""
        self._epoch = 0
        self.produced = 0
        self.kept: deque[int] = deque()
        """Sent or to be sent, not known to be saved."""
        self.buffered = self.most_buffered = 0
        self.paused = False
        self._target_epoch = 0
        """Epoch of the owner, as far as the sender has heard."""
        self.paused_s: float | None = None
        self.pause_s = 0.0
        """How long the stream stood still."""
        self.steps: list[str] = []
        self._spare = 0

    def run(self, *, move_at_s: float, deaths: list[tuple[float, str]], until_s: float = 60.0) -> None:
        """Send all messages, move at a time, let nodes (`old`, `new`) die at times, and wait until all is saved."""
        self._at(self.options.period_s, self._produce)
        self._at(move_at_s, self._begin)
        for time_s, node in deaths:
            self._at(time_s, partial(self._die, node))
        while self._agenda and self.now_s < until_s and self.saved.number < self._messages:
            self.now_s, _, call = heapq.heappop(self._agenda)
            call()

    # The sender

    def _produce(self) -> None:
        if self.produced == self._messages:
            return
        # Past the bound it stops altogether: nothing new comes into being until the stream goes on.
        if not self.paused or self.buffered < self.options.buffer_messages:
            self.produced += 1
            self.kept.append(self.produced)
            if self.paused:
                self.buffered += 1
                self.most_buffered = max(self.most_buffered, self.buffered)
            else:
                self._send(self.owner, self.produced)
        self._at(self.options.period_s, self._produce)

    def _send(self, to: Instance, number: int) -> None:
        epoch = self._target_epoch
        arrives = max(self.now_s + self._delay(), self._lines.get((to.node, epoch), 0.0))
        self._lines[to.node, epoch] = arrives
        self._when(arrives, lambda: self._arrive(to, number, epoch))

    def _pause(self, epoch: int) -> None:
        if epoch == self._epoch and not self.paused:
            self.steps.append("pause")
            self.paused, self.paused_s = True, self.now_s
            last = self.produced
            self._control(lambda: self._drain(epoch, last))

    def _resume(self, owner: Instance, epoch: int, after: int) -> None:
        """Play everything after `after` to the owner, in order, and go on as usual."""
        if epoch < self._target_epoch:
            return  # a newer owner has been named meanwhile
        self._target_epoch = epoch
        while self.kept and self.kept[0] <= after:
            self.kept.popleft()
        self.owner, self.paused, self.buffered = owner, False, 0
        if self.paused_s is not None:
            self.pause_s, self.paused_s = self.pause_s + self.now_s - self.paused_s, None
        self.steps.append(f"resume {owner.node}")
        for number in self.kept:
            self._send(owner, number)

    # Instances

    def _arrive(self, at: Instance, number: int, line: int) -> None:
        # Who plays again does so on a new line; what is still on the way on the old one is among what is played.
        if at.node in self.dead or at.ended or line < at.line:
            return
        at.line = line
        at.queue.append(number)
        self._work(at)

    def _work(self, at: Instance) -> None:
        if at.busy or not at.ready or at.ended or at.node in self.dead:
            return
        if at.drain_to is not None and at.number >= at.drain_to:
            self._save(at)
            self._hand_over(at)
            return
        while at.queue and at.queue[0] <= at.number:
            at.queue.popleft()  # played again after an abort; it has been here before
        if at.queue and at.queue[0] == at.number + 1:
            at.busy = True
            number = at.queue.popleft()
            self._at(self.options.service_s, lambda: self._done(at, number))

    def _done(self, at: Instance, number: int) -> None:
        at.busy = False
        if at.node in self.dead or at.ended:
            return
        at.number, at.state = number, at.state + number
        at.unsaved.append((number, at.state))
        if len(at.unsaved) >= self.options.save_every or number == self._messages:
            self._save(at)
        self._work(at)

    def _save(self, at: Instance) -> None:
        """State and results together, or neither; refused to whoever is not the owner any more."""
        if at.epoch != self.saved.epoch:
            at.ended = True
            return
        self.saved.results += at.unsaved
        self.saved.state, at.unsaved = at.state, []
        number = at.number
        self._control(lambda: self._forget(number))

    def _forget(self, number: int) -> None:
        while not self.paused and self.kept and self.kept[0] <= number:
            self.kept.popleft()

    def _hand_over(self, at: Instance) -> None:
        at.drain_to = None
        new, epoch, state, number = self.newcomer, self._epoch, at.state, at.number
        if new is None:
            return
        self.steps.append("transfer")
        took = self.options.state_bytes / self.options.bandwidth_bps + self._delay()
        self._at(took, lambda: self._restore(new, epoch, state, number))

    def _restore(self, new: Instance, epoch: int, state: int, number: int) -> None:
        if new.node in self.dead or new.ended:
            return
        new.state, new.number = state, number
        self._control(lambda: self._restored(new, epoch))

    # The orchestrator

    def _begin(self) -> None:
        if self.owner.node in self.dead or "new" in self.dead:
            return
        self._epoch += 1
        epoch = self._epoch
        self.steps.append("deploy")
        self.newcomer = Instance("new", epoch)
        self._at(self.options.deploy_s + self._delay(), lambda: self._deployed(epoch))

    def _deployed(self, epoch: int) -> None:
        if epoch == self._epoch and self.newcomer is not None and self.newcomer.node not in self.dead:
            self._control(lambda: self._pause(epoch))

    def _drain(self, epoch: int, last: int) -> None:
        """The last sequence number, relayed to the old instance."""
        old = self.owner
        if epoch == self._epoch and old.node not in self.dead:
            self.steps.append(f"drain {last}")
            self._control(lambda: self._drain_at(old, epoch, last))

    def _drain_at(self, old: Instance, epoch: int, last: int) -> None:
        if epoch == self._epoch:
            old.drain_to = last
            self._work(old)

    def _restored(self, new: Instance, epoch: int) -> None:
        if epoch != self._epoch or self.newcomer is not new or new.node in self.dead:
            return
        old = self.owner
        self._own(new)
        self._control(lambda: self._end(old))
        self.steps.append("end")

    def _end(self, old: Instance) -> None:
        old.ended = True

    def _own(self, instance: Instance) -> None:
        """From now on this instance saves; it begins after what is saved."""
        if instance.epoch < self._epoch:
            return  # somebody was named later
        self._owners.append(instance)
        self.saved.epoch, self.newcomer = instance.epoch, None
        instance.number, instance.state = self.saved.number, self.saved.state
        instance.ready = True
        epoch, after = instance.epoch, instance.number
        self._control(lambda: self._resume(instance, epoch, after))

    def _die(self, node: str) -> None:
        if node not in self.dead:
            self.dead.add(node)
            self.steps.append(f"death {node}")
            self._at(self.options.detect_s, lambda: self._noticed(node))

    def _noticed(self, node: str) -> None:
        new, owner = self.newcomer, self._saving()
        if new is not None and new.node == node:
            # Called off: the old instance still has everything. It goes on as its own successor.
            self.newcomer = None
            if owner.node not in self.dead:
                self._epoch += 1
                owner.epoch, owner.drain_to = self._epoch, None
                self.saved.epoch = owner.epoch
                self._save(owner)
                epoch, after = owner.epoch, self.saved.number
                self._control(lambda: self._resume(owner, epoch, after))
                self._work(owner)
                return
        if owner.node == node:
            # Another one begins where the saved state ends: the newcomer if it is there, else on a spare node.
            self._epoch += 1
            self._spare += 1
            here = new.node if new is not None and new.node not in self.dead else f"spare-{self._spare}"
            if new is not None:
                new.ended = True
            successor = Instance(here, self._epoch)
            self._at(self.options.deploy_s, lambda: self._own(successor))

    def _saving(self) -> Instance:
        """Who owns the stream, as the saved epoch says; the sender may not have heard yet."""
        return next(i for i in reversed(self._owners) if i.epoch == self.saved.epoch)

    # Time

    def _control(self, call: Callable[[], None]) -> None:
        self._at(self._delay(), call)

    def _at(self, after_s: float, call: Callable[[], None]) -> None:
        self._when(self.now_s + after_s, call)

    def _when(self, time_s: float, call: Callable[[], None]) -> None:
        self._asked += 1
        heapq.heappush(self._agenda, (time_s, self._asked, call))
