"""The agenda of the discrete simulation: a heap of events by (time, kind, sequence), each at a known place.

An event can be moved or withdrawn in place, so there are no stale entries.
"""

from __future__ import annotations

from penstock.simulator.compiled import compiled
from penstock.simulator.discrete_tables import agenda, events
from penstock.simulator.records import World

# At the same instant: who finishes makes room before others arrive.
FINISH, DELIVERY, DEADLINE, ARRIVAL = range(4)


@compiled
def new_event(w: World, kind: int, subject: int) -> int:
    """An event that is not scheduled yet."""
    e = w.free_event
    event = events(w, e)
    w.free_event = event.next
    w.free_events -= 1
    event.kind = kind
    event.subject = subject
    event.place = -1
    return int(e)


@compiled
def free_event(w: World, e: int) -> None:
    """Give an unscheduled event back."""
    events(w, e).next = w.free_event
    w.free_event = e
    w.free_events += 1


@compiled
def _put(w: World, place: int, time: float, order: int, e: int) -> None:
    entry = agenda(w, place)
    entry.time = time
    entry.order = order
    entry.event = e
    events(w, e).place = place


@compiled
def _rise(w: World, place: int, time: float, order: int, e: int) -> None:
    while place > 0:
        parent = (place - 1) >> 1
        above = agenda(w, parent)
        if above.time < time or (above.time == time and above.order < order):
            break
        _put(w, place, above.time, above.order, above.event)
        place = parent
    _put(w, place, time, order, e)


@compiled
def _sink(w: World, place: int, time: float, order: int, e: int) -> None:
    while True:
        child = 2 * place + 1
        if child >= w.scheduled:
            break
        below = agenda(w, child)
        if child + 1 < w.scheduled:
            other = agenda(w, child + 1)
            if other.time < below.time or (other.time == below.time and other.order < below.order):
                child += 1
                below = other
        if time < below.time or (time == below.time and order < below.order):
            break
        _put(w, place, below.time, below.order, below.event)
        place = child
    _put(w, place, time, order, e)


@compiled
def schedule(w: World, e: int, time: float) -> None:
    """Let the event happen at `time`, whether or not it was scheduled before."""
    w.sequence += 1
    order = (events(w, e).kind << 56) | w.sequence
    place = events(w, e).place
    if place < 0:
        w.scheduled += 1
        _rise(w, w.scheduled - 1, time, order, e)
    elif time < agenda(w, place).time:
        _rise(w, place, time, order, e)
    else:
        _sink(w, place, time, order, e)


@compiled
def withdraw(w: World, e: int) -> None:
    """Take the event off the agenda, if it is on it."""
    place = events(w, e).place
    if place < 0:
        return
    events(w, e).place = -1
    w.scheduled -= 1
    if place == w.scheduled:
        return
    last = agenda(w, w.scheduled)
    if place > 0:
        above = agenda(w, (place - 1) >> 1)
        if last.time < above.time or (last.time == above.time and last.order < above.order):
            _rise(w, place, last.time, last.order, last.event)
            return
    _sink(w, place, last.time, last.order, last.event)
