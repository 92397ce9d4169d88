"""Records on their way: output batches, links, queues, and senders that wait for room.

A channel leads from one task to another. Its batch leaves when the deadline is over or it is full, and only if the
receiver has room for all of it; otherwise the channel waits in line there and its sender starts no new record.
"""

from __future__ import annotations

from penstock.simulator.agenda import DEADLINE, DELIVERY, free_event, new_event, schedule, withdraw
from penstock.simulator.compiled import compiled
from penstock.simulator.discrete_tables import (
    KEY,
    channels,
    events,
    link_until,
    nodes,
    operators,
    outs,
    ready,
    records,
    streams,
    tasks,
)
from penstock.simulator.draws import bucket, mix
from penstock.simulator.records import World

NEVER = 1e300


@compiled
def new_record(w: World) -> int:
    """A record off the free list."""
    r = w.free_record
    w.free_record = records(w, r).next
    w.free_records -= 1
    records(w, r).next = -1
    return int(r)


@compiled
def free_record(w: World, r: int) -> None:
    """Give a record back."""
    records(w, r).next = w.free_record
    w.free_record = r
    w.free_records += 1


@compiled
def make_ready(w: World, t: int) -> None:
    """Let the task be looked at before the clock moves on."""
    task = tasks(w, t)
    if task.listed == 0:
        task.listed = 1
        ready(w, w.ready_tasks).value = t
        w.ready_tasks += 1


@compiled
def enqueue(w: World, t: int, r: int) -> None:
    """Put a record at the end of a task's queue."""
    task, record, now = tasks(w, t), records(w, r), w.now
    record.next = -1
    record.queued_at = now
    if task.queued == 0:
        task.head = r
    else:
        records(w, task.tail).next = r
    task.tail = r
    task.queued += 1
    task.arrived += 1.0
    if task.last_arrival >= 0.0:
        gap = now - task.last_arrival
        task.gap_n += 1.0
        task.gap_1 += gap
        task.gap_2 += gap * gap
    task.last_arrival = now
    if task.busy == 0 and task.blocked == 0:
        make_ready(w, t)


@compiled
def transfer_s(w: World, source: int, target: int, size: float) -> float:
    """Seconds until `size` bytes sent now are there; sender, link and receiver each carry one thing at a time.

    The three overlap: each passes on what has come in, so the slowest of them decides.
    """
    if source == target:
        return 0.0
    a, b, now = nodes(w, source), nodes(w, target), w.now
    a.sending_until = max(now, a.sending_until) + size / a.bandwidth
    pair = source * w.node_rows + target
    until = link_until(w, pair)
    until.value = max(now, until.value) + size / w.link_bandwidth
    there = max(a.sending_until, until.value) + w.link_latency
    b.receiving_until = max(there, b.receiving_until + size / b.bandwidth)
    a.bytes_out += size
    b.bytes_in += size
    return float(b.receiving_until - now)


@compiled
def owner(w: World, s: int, r: int) -> int:
    """The task that owns the record's key, for a stream wired by key."""
    stream = streams(w, s)
    operator = operators(w, stream.target)
    return int(operator.base + bucket(mix(records(w, r).key ^ stream.key_salt), operator.tasks))


@compiled
def deliver(w: World, c: int, head: int, count: int, t: int, remote: int) -> None:
    """Let a batch arrive."""
    channel = channels(w, c)
    s = channel.stream
    stream = streams(w, s)
    stream.delivered += count
    tasks(w, t).bytes_in += count * stream.record_bytes
    if remote:
        tasks(w, t).overhead += w.receive_s
    r = head
    for _ in range(count):
        following = records(w, r).next
        to = t
        if stream.wiring == KEY:
            # The owner may have changed while the record was on its way.
            to = owner(w, s, r)
            if to != t:
                tasks(w, t).reserved -= 1
                tasks(w, to).reserved += 1
        enqueue(w, to, r)
        r = following


@compiled
def flush(w: World, c: int) -> None:
    """Send a channel's batch, for which there is room."""
    channel = channels(w, c)
    stream, now = streams(w, channel.stream), w.now
    if channel.event >= 0:
        withdraw(w, channel.event)
        free_event(w, channel.event)
        channel.event = -1
    r = channel.head
    for _ in range(channel.count):
        wait = now - records(w, r).emitted
        stream.wait_1 += wait
        stream.wait_2 += wait * wait
        r = records(w, r).next
    stream.wait_n += channel.count
    sender, receiver = tasks(w, channel.source), tasks(w, channel.target)
    receiver.reserved += channel.count
    remote = 0
    delay = 0.0
    if sender.node != receiver.node:
        remote = 1
        delay = transfer_s(w, sender.node, receiver.node, channel.bytes)
        stream.remote_bytes += channel.bytes
        sender.overhead += w.send_s
    head, count = channel.head, channel.count
    channel.count = 0
    channel.bytes = 0.0
    if delay <= 0.0 and channel.on_the_way == 0 and channel.last_delivery <= now:
        deliver(w, c, head, count, channel.target, remote)
        return
    # Nothing overtakes what was sent before it on the same channel, also when a task has moved nearer.
    channel.last_delivery = max(now + delay, channel.last_delivery)
    channel.on_the_way += 1
    e = new_event(w, DELIVERY, c)
    event = events(w, e)
    event.record = head
    event.count = count
    event.target = channel.target
    event.remote = remote
    schedule(w, e, channel.last_delivery)


@compiled
def _fits(w: World, c: int) -> bool:
    channel = channels(w, c)
    receiver = tasks(w, channel.target)
    # A batch larger than the whole queue passes when the queue is empty.
    return bool(receiver.reserved + channel.count <= receiver.capacity or receiver.reserved == 0)


@compiled
def try_flush(w: World, c: int) -> None:
    """Send a channel's batch, or let the channel wait in line for room."""
    channel = channels(w, c)
    if channel.blocked or channel.count == 0:
        return
    receiver = tasks(w, channel.target)
    if receiver.waiting_head < 0 and _fits(w, c):
        flush(w, c)
        return
    channel.blocked = 1
    channel.next_waiting = -1
    if receiver.waiting_head < 0:
        receiver.waiting_head = c
    else:
        channels(w, receiver.waiting_tail).next_waiting = c
    receiver.waiting_tail = c
    tasks(w, channel.source).blocked += 1


@compiled
def admit(w: World, t: int) -> None:
    """Let channels that wait for room at a task send, first come first served."""
    task = tasks(w, t)
    while task.waiting_head >= 0 and _fits(w, task.waiting_head):
        c = task.waiting_head
        channel = channels(w, c)
        task.waiting_head = channel.next_waiting
        channel.blocked = 0
        sender = tasks(w, channel.source)
        sender.blocked -= 1
        flush(w, c)
        if sender.blocked == 0:
            if sender.lingering:
                sender.lingering = 0
                took = w.now - sender.started
                sender.latency_n += 1.0
                sender.latency_1 += took
                sender.latency_2 += took * took
            make_ready(w, channel.source)


@compiled
def append(w: World, c: int, r: int) -> None:
    """Put a record into a channel's batch, and send the batch if it is due."""
    channel = channels(w, c)
    stream = streams(w, channel.stream)
    now = w.now
    records(w, r).next = -1
    if channel.count == 0:
        channel.head = r
        channel.opened = now
    else:
        records(w, channel.tail).next = r
    channel.tail = r
    channel.count += 1
    channel.bytes += stream.record_bytes
    channel.records += 1.0
    channel.sent_bytes += stream.record_bytes
    stream.sent += 1.0
    stream.bytes += stream.record_bytes
    tasks(w, channel.source).bytes_out += stream.record_bytes
    if stream.deadline <= 0.0 or channel.bytes >= stream.batch_bytes:
        try_flush(w, c)
    elif channel.count == 1 and stream.deadline < NEVER:
        channel.event = new_event(w, DEADLINE, c)
        schedule(w, channel.event, now + stream.deadline)


@compiled
def flush_stream(w: World, s: int) -> None:
    """Send all open batches of a stream, or let them wait in line for room."""
    stream = streams(w, s)
    for c in range(stream.base, stream.base + stream.channels):
        try_flush(w, c)


@compiled
def flush_task(w: World, t: int) -> bool:
    """Send all open batches of a task; whether everything could leave."""
    task = tasks(w, t)
    operator = operators(w, task.operator)
    for j in range(operator.outs):
        stream = streams(w, outs(w, operator.first_out + j).value)
        first = stream.base + task.index * stream.columns
        for c in range(first, first + stream.columns):
            try_flush(w, c)
    return bool(task.blocked == 0)


@compiled
def hand_over(w: World, o: int, most: int) -> None:
    """Give the queued records of an operator, all of whose tasks are at rest, to those that own them now.

    A key had one owner before and has one now, and queues are walked in order: the records of a key keep theirs.
    """
    operator = operators(w, o)
    head, tail = -1, -1
    for t in range(operator.base, operator.base + most):
        task = tasks(w, t)
        if task.queued == 0:
            continue
        if head < 0:
            head = task.head
        else:
            records(w, tail).next = task.head
        tail = task.tail
        records(w, tail).next = -1
        task.reserved -= task.queued
        task.queued = 0
    r = head
    while r >= 0:
        record = records(w, r)
        following = record.next
        if streams(w, record.stream).wiring == KEY:
            t = owner(w, record.stream, r)
        else:
            t = operator.base + bucket(mix(record.hash), operator.tasks)
        task = tasks(w, t)
        record.next = -1
        if task.queued == 0:
            task.head = r
        else:
            records(w, task.tail).next = r
        task.tail = r
        task.queued += 1
        task.reserved += 1
        r = following
    for t in range(operator.base, operator.base + most):
        admit(w, t)
        make_ready(w, t)


@compiled
def set_deadline(w: World, s: int, deadline: float) -> None:
    """Give a stream another batching deadline, also for the batches that are open."""
    stream, now = streams(w, s), w.now
    stream.deadline = deadline
    for c in range(stream.base, stream.base + stream.channels):
        channel = channels(w, c)
        if channel.count == 0 or channel.blocked:
            continue
        if deadline >= NEVER:
            if channel.event >= 0:
                withdraw(w, channel.event)
                free_event(w, channel.event)
                channel.event = -1
            continue
        if channel.event < 0:
            channel.event = new_event(w, DEADLINE, c)
        schedule(w, channel.event, max(now, channel.opened + deadline))
