"""Nodes as processors that tasks share.

A task in service uses one core. If more tasks are in service than cores are left by foreign load, every one of
them gets the same share, at once and exactly: work is counted per node as what each task in service has had
(a virtual time), so a change of the share moves all ends of service together, without touching the tasks.
"""

from __future__ import annotations

from penstock.simulator.agenda import schedule, withdraw
from penstock.simulator.compiled import compiled
from penstock.simulator.discrete_tables import nodes, serving, tasks
from penstock.simulator.records import World

LEAST_SHARE = 0.01
"""However busy others are, this share of a node's cores is left to us: no scheduler starves a process entirely."""


@compiled
def _touch(w: World, n: int) -> None:
    node, now = nodes(w, n), w.now
    passed = now - node.touched
    node.touched = now
    if node.busy == 0:
        # No service refers to them: starting anew keeps them small and therefore precise.
        node.work = 0.0
        node.cpu = 0.0
    elif passed > 0.0:
        node.work += passed * node.share * node.speed
        node.cpu += passed * node.share
        node.busy_s += passed * node.busy
        node.cpu_s += passed * node.busy * node.share


@compiled
def _next_finish(w: World, n: int) -> None:
    node = nodes(w, n)
    if node.busy == 0:
        withdraw(w, node.event)
        return
    free = max(node.cores - node.foreign, node.cores * LEAST_SHARE)
    node.share = 1.0 if node.busy <= free else free / node.busy
    left = max(tasks(w, serving(w, n * w.places).value).work_done - node.work, 0.0)
    schedule(w, node.event, w.now + left / (node.share * node.speed))


@compiled
def begin(w: World, t: int, work: float) -> None:
    """Start a service of `work` reference core-seconds."""
    task = tasks(w, t)
    n = task.node
    _touch(w, n)
    node, first = nodes(w, n), n * w.places
    w.sequence += 1
    task.turn = w.sequence
    task.work_done = node.work + work
    task.cpu_start = node.cpu
    task.busy = 1
    place = node.busy
    node.busy += 1
    while place > 0:
        parent = (place - 1) >> 1
        above = tasks(w, serving(w, first + parent).value)
        if above.work_done <= task.work_done:
            break
        serving(w, first + place).value = serving(w, first + parent).value
        place = parent
    serving(w, first + place).value = t
    _next_finish(w, n)


@compiled
def finish(w: World, n: int) -> int:
    """End the service that is due on a node, and say whose it was."""
    _touch(w, n)
    node, first = nodes(w, n), n * w.places
    t = serving(w, first).value
    task = tasks(w, t)
    node.work = task.work_done  # what the clock rounded away
    node.busy -= 1
    moved = serving(w, first + node.busy).value
    key, turn = tasks(w, moved).work_done, tasks(w, moved).turn
    place = 0
    while True:
        child = 2 * place + 1
        if child >= node.busy:
            break
        below = tasks(w, serving(w, first + child).value)
        if child + 1 < node.busy:
            other = tasks(w, serving(w, first + child + 1).value)
            if other.work_done < below.work_done or (
                other.work_done == below.work_done and other.turn < below.turn
            ):
                child += 1
                below = other
        if key < below.work_done or (key == below.work_done and turn <= below.turn):
            break
        serving(w, first + place).value = serving(w, first + child).value
        place = child
    serving(w, first + place).value = moved
    task.busy = 0
    task.busy_s += w.now - task.started
    task.cpu_s += node.cpu - task.cpu_start
    _next_finish(w, n)
    return int(t)


@compiled
def disturb(w: World, n: int, foreign: float, speed: float) -> None:
    """Let a node have another foreign load and speed from now on."""
    _touch(w, n)
    nodes(w, n).foreign = foreign
    nodes(w, n).speed = speed
    _next_finish(w, n)
