"""What tasks of the fluid simulation may process in a step: cores, room in queues, and bandwidth."""

from __future__ import annotations

import math

from penstock.simulator.compiled import compiled
from penstock.simulator.discrete_tables import BROADCAST, FORWARD, KEY
from penstock.simulator.fluid_tables import (
    by_node,
    coming,
    ins,
    leaving,
    nodes,
    on_node,
    operators,
    order,
    outs,
    streams,
    tasks,
    wishes,
)
from penstock.simulator.processors import LEAST_SHARE
from penstock.simulator.records import World


@compiled
def receiver(w: World, s: int, t: int) -> int:
    """Whom a task sends to on a forward stream."""
    source, target = operators(w, streams(w, s).source), operators(w, streams(w, s).target)
    return int(target.base + (t - source.base) % target.tasks)


@compiled
def copies(w: World, s: int) -> float:
    """How many tasks get each record of a stream."""
    stream = streams(w, s)
    return float(operators(w, stream.target).tasks) if stream.wiring == BROADCAST else 1.0


@compiled
def part_of(w: World, s: int, t: int) -> float:
    """The share of a stream's records that one of its receivers gets."""
    stream = streams(w, s)
    if stream.wiring == KEY:
        return float(tasks(w, t).share)
    return 1.0 if stream.wiring == BROADCAST else 1.0 / operators(w, stream.target).tasks


@compiled
def ask(w: World, step: float) -> None:
    """Set what each task would process with a core of its own and nobody in its way."""
    for t in range(w.task_rows):
        task = tasks(w, t)
        if task.node < 0:
            continue
        operator = operators(w, task.operator)
        expected = task.inflow if operator.source else task.before
        task.ready = 0.0 if task.paused else (task.queue + expected) * operator.keep
        if operator.work > 0.0:
            task.ready = min(task.ready, nodes(w, task.node).speed * step / operator.work)
        task.capacity = math.inf
    for i in range(w.node_rows * w.stream_rows):
        leaving(w, i).value = 1.0
        coming(w, i).value = 1.0


@compiled
def share_cores(w: World, step: float) -> None:
    """Give every task its part of its node: what it needs, or, where that is too much, the same for all.

    A task needs what `ready` says: who is held back by its receivers does not hold a core.
    """
    for n in range(w.node_rows):
        node = nodes(w, n)
        cores, total, running = max(node.cores - node.foreign, node.cores * LEAST_SHARE), 0.0, 0
        here = range(node.first, node.first + node.slots)
        for i in here:
            task = tasks(w, by_node(w, i).value)
            work = operators(w, task.operator).work
            task.need = -1.0
            if work > 0.0 and not task.paused:
                task.need = min(1.0, task.ready * work / node.speed / step)
                total += task.need
                running += 1
        level = 1.0
        if total > cores:
            level = cores / running
            while True:  # up to where all cores are used, and who needs less keeps what it needs (max-min)
                modest, many = 0.0, 0
                for i in here:
                    need = tasks(w, by_node(w, i).value).need
                    if 0.0 <= need <= level:
                        modest += need
                        many += 1
                higher = (cores - modest) / (running - many) if many < running else level
                if higher <= level:
                    break
                level = higher
        node.level = min(level, 1.0)
        spare = (cores - total) / running if total < cores and running else 0.0
        for i in here:
            task = tasks(w, by_node(w, i).value)
            if task.paused:
                task.capacity = 0.0
            elif task.need >= 0.0:
                core = min(task.need + spare, node.level)
                task.capacity = min(
                    task.capacity, core * node.speed * step / operators(w, task.operator).work
                )
            task.ready = min(task.ready, task.capacity)


@compiled
def wish(w: World) -> None:
    """Add up what every task would be sent."""
    for t in range(w.task_rows):
        tasks(w, t).wanted = 0.0
    for s in range(w.stream_rows):
        stream = streams(w, s)
        source, target = operators(w, stream.source), operators(w, stream.target)
        factor, total = source.selectivity * stream.keep, 0.0
        for t in range(source.base, source.base + source.most):
            if tasks(w, t).node >= 0:
                total += tasks(w, t).ready * factor
                if stream.wiring == FORWARD:
                    tasks(w, receiver(w, s, t)).wanted += tasks(w, t).ready * factor
        stream.rate = total * copies(w, s)
        if stream.wiring != FORWARD:
            for t in range(target.base, target.base + target.tasks):
                tasks(w, t).wanted += total * part_of(w, s, t)


@compiled
def cross(w: World, s: int) -> float:
    """Set the bytes of a stream that leave and reach each node if tasks process what is `ready`; their sum."""
    stream = streams(w, s)
    source, rows, b = operators(w, stream.source), w.stream_rows, stream.target * w.node_rows
    for n in range(w.node_rows):
        leaving(w, n * rows + s).value = 0.0
        coming(w, n * rows + s).value = 0.0
    size = source.selectivity * stream.keep * copies(w, s) * stream.record_bytes
    total, remote = 0.0, 0.0
    for t in range(source.base, source.base + source.most):
        n = tasks(w, t).node
        if n < 0:
            continue
        amount = tasks(w, t).ready * size
        if stream.wiring != FORWARD:
            leaving(w, n * rows + s).value += amount
            total += amount
        elif tasks(w, receiver(w, s, t)).node != n:
            leaving(w, n * rows + s).value += amount
            coming(w, tasks(w, receiver(w, s, t)).node * rows + s).value += amount
            remote += amount
    if stream.wiring != FORWARD:
        for n in range(w.node_rows):
            out, here = leaving(w, n * rows + s), on_node(w, b + n).value
            coming(w, n * rows + s).value = here * (total - out.value)
            out.value *= 1.0 - here
            remote += out.value
    return remote


@compiled
def _level(w: World, count: int, most: float) -> float:
    """The most that each of `count` wishes may have so that all together have `most` (max-min)."""
    level = most / count
    while True:
        modest, many = 0.0, 0
        for i in range(count):
            if wishes(w, i).value <= level:
                modest += wishes(w, i).value
                many += 1
        higher = (most - modest) / (count - many) if many < count else level
        if higher <= level:
            return level
        level = higher


@compiled
def network(w: World, step: float) -> bool:
    """Turn what streams would carry into the shares that nodes' bandwidths let through; whether any is below 1."""
    for s in range(w.stream_rows):
        cross(w, s)
    tight, rows = False, w.stream_rows
    for n in range(w.node_rows):
        most = nodes(w, n).bandwidth * step
        for inward in range(2):
            total = 0.0
            for s in range(rows):
                wish_of = coming(w, n * rows + s) if inward else leaving(w, n * rows + s)
                wishes(w, s).value = wish_of.value
                total += wish_of.value
            level = math.inf
            if total > most:
                tight = True
                level = _level(w, rows, most)
            for s in range(rows):
                share = coming(w, n * rows + s) if inward else leaving(w, n * rows + s)
                share.value = level / share.value if share.value > level else 1.0
    return tight


@compiled
def _accept(w: World, o: int, least: float) -> None:
    """Say how much of each stream an operator takes if its fullest task has room for a share `least` of all."""
    operator, total, count = operators(w, o), 0.0, 0
    for j in range(operator.first_in, operator.first_in + operator.ins):
        stream = streams(w, ins(w, j).value)
        if stream.wiring != FORWARD:
            wishes(w, count).value = stream.rate
            total += stream.rate
            count += 1
    level = _level(w, count, least * total) if least < 1.0 and count else math.inf
    for j in range(operator.first_in, operator.first_in + operator.ins):
        s = ins(w, j).value
        stream = streams(w, s)
        if stream.wiring != FORWARD:
            stream.accept = level / stream.rate if stream.rate > level else 1.0
            for n in range(w.node_rows):
                if on_node(w, o * w.node_rows + n).value > 0.0:
                    stream.accept = min(stream.accept, coming(w, n * w.stream_rows + s).value)


@compiled
def hold_back(w: World, known: bool) -> None:
    """Lower what tasks will process to what receivers' queues and the network take, from the sinks back.

    What a receiver itself will process makes room. Before that is known, what it did in the last step stands for it.
    """
    rows = w.stream_rows
    for at in range(w.operator_rows - 1, -1, -1):
        o = order(w, at).value
        operator = operators(w, o)
        least = 1.0
        for t in range(operator.base, operator.base + operator.most):
            task = tasks(w, t)
            n = task.node
            if n < 0:
                continue
            passing = 1.0
            for j in range(operator.first_out, operator.first_out + operator.outs):
                s = outs(w, j).value
                stream = streams(w, s)
                if stream.wiring == FORWARD:
                    to = tasks(w, receiver(w, s, t))
                    passing = min(passing, to.accept)
                    if to.node != n:
                        passing = min(passing, leaving(w, n * rows + s).value)
                        passing = min(passing, coming(w, to.node * rows + s).value)
                else:
                    passing = min(passing, stream.accept)
                    if on_node(w, stream.target * w.node_rows + n).value < 1.0:
                        passing = min(passing, leaving(w, n * rows + s).value)
            if passing < 1.0:
                task.ready *= passing
                task.capacity = task.ready
            leaves = task.ready if known else min(task.ready, task.done)
            room = max(task.limit - task.queue, 0.0) + leaves
            task.accept = room / task.wanted if task.wanted > room else 1.0
            if t - operator.base < operator.tasks:
                least = min(least, task.accept)
        _accept(w, o, least)
