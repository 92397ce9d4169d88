"""The discrete simulation itself: records arrive, are served, and are passed on, event by event."""

from __future__ import annotations

import math

import numpy as np

from penstock.simulator.agenda import ARRIVAL, DEADLINE, FINISH, free_event, schedule, withdraw
from penstock.simulator.channels import (
    admit,
    append,
    deliver,
    enqueue,
    free_record,
    make_ready,
    new_record,
    owner,
    try_flush,
)
from penstock.simulator.compiled import compiled
from penstock.simulator.discrete_tables import (
    BROADCAST,
    CARRY,
    ENTER,
    FORWARD,
    KEY,
    LEAVE,
    agenda,
    alternates,
    channels,
    clocks,
    constraint_bins,
    cursors,
    events,
    feeds,
    key_alias,
    key_share,
    load_rates,
    load_times,
    operator_role,
    operators,
    outs,
    ready,
    records,
    sink_bins,
    sink_sums,
    stream_role,
    streams,
    tasks,
    trace,
)
from penstock.simulator.draws import GOLDEN, bucket, mix, positive, uniform
from penstock.simulator.processors import begin, finish
from penstock.simulator.records import World
from penstock.telemetry.sketch import LARGEST, RELATIVE_ERROR, SMALLEST

# Why `advance` came back.
DONE, SHORT, TRACED, IDLE = range(4)

# Kinds of trace rows.
CREATED, STARTED, ENDED, SHED = range(4)

_PER_BIN = 1.0 / math.log((1 + RELATIVE_ERROR) / (1 - RELATIVE_ERROR))
_WORK, _COUNT = np.uint64(0x51ED2701), np.uint64(0x2545F491)


@compiled
def sketch_bin(value: float) -> int:
    """The bin of `telemetry.Sketch` a number falls into."""
    return math.ceil(math.log(min(max(value, SMALLEST), LARGEST) / SMALLEST) * _PER_BIN)


@compiled
def _count(w: World, c: int, passed: float) -> None:
    constraint_bins(w, c * w.bins + sketch_bin(passed)).value += 1.0


@compiled
def _note(w: World, kind: int, t: int, r: int) -> None:
    if w.trace_rows == 0:
        return
    record, task = records(w, r), tasks(w, t)
    row = trace(w, w.noted)
    row.time_s = w.now
    row.kind = kind
    row.operator = task.operator
    row.index = task.index
    row.feed = record.feed
    row.number = record.number
    w.noted += 1


@compiled
def next_arrival(w: World, f: int) -> float:
    """When the feed's next record arrives: gaps of mean 1 in the time in which its load has rate 1."""
    feed = feeds(w, f)
    if feed.silent:
        return math.inf
    need = positive(mix(feed.salt + np.uint64(feed.number) * GOLDEN), feed.kind, feed.cv)
    t = feed.time
    while True:
        p = feed.position
        last = p + 1 == feed.count
        end = feed.cycle_start + (feed.period if last else load_times(w, feed.first + p + 1).value)
        rate = load_rates(w, feed.first + p).value
        if rate > 0.0 and need <= (end - t) * rate:
            feed.time = t + need / rate
            return float(feed.time)
        if end == math.inf:
            return math.inf
        need -= max(end - t, 0.0) * rate
        t = max(t, end)
        if last:
            feed.position = 0
            feed.cycle_start += feed.period
        else:
            feed.position += 1


@compiled
def _arrive(w: World, f: int) -> None:
    feed, now = feeds(w, f), w.now
    operator = operators(w, feed.operator)
    r = new_record(w)
    record = records(w, r)
    record.born = now
    record.emitted = now
    record.stream = -1
    record.feed = f
    record.number = feed.number
    record.hash = mix(feed.salt ^ mix(np.uint64(feed.number) + GOLDEN))
    if w.key_count:
        # Walker's alias method: a uniform pick of a column, then of the column's two keys.
        bits = mix(record.hash + GOLDEN)
        k = bucket(bits, w.key_count)
        if uniform(mix(bits)) >= key_share(w, k).value:
            k = key_alias(w, k).value
        record.key = mix(np.uint64(k) + GOLDEN)
    else:
        record.key = record.hash
    record.sample = uniform(mix((record.key if operator.keep_by_key else record.hash) ^ operator.sample_salt))
    record.keep = 1.0
    for c in range(w.constraints):
        clocks(w, r * w.constraints + c).value = -1.0
    index = feed.index
    if index < 0:
        if w.random_spread:
            index = bucket(record.hash, operator.tasks)
        else:
            index = feed.cursor % operator.tasks
            feed.cursor = index + 1
    t = operator.base + index
    tasks(w, t).reserved += 1
    feed.number += 1
    _note(w, CREATED, t, r)
    enqueue(w, t, r)
    due = next_arrival(w, f)
    if due < math.inf:
        schedule(w, feed.event, due)
    else:
        withdraw(w, feed.event)


@compiled
def _send(w: World, t: int, parent: int, bits: np.uint64, sample: float, s: int, index: int) -> None:
    stream, task = streams(w, s), tasks(w, t)
    r = new_record(w)
    record, old = records(w, r), records(w, parent)
    now = w.now
    record.born = old.born
    record.emitted = now
    record.stream = s
    record.feed = old.feed
    record.number = old.number
    record.hash = bits
    record.key = old.key
    record.sample = sample
    record.keep = old.keep * stream.keep
    for c in range(w.constraints):
        role = stream_role(w, s * w.constraints + c).value
        if role & ENTER:
            clocks(w, r * w.constraints + c).value = now
        elif role & CARRY:
            clocks(w, r * w.constraints + c).value = clocks(w, parent * w.constraints + c).value
        else:
            clocks(w, r * w.constraints + c).value = -1.0
    c = stream.base + task.index * stream.columns + (0 if stream.wiring == FORWARD else index)
    if channels(w, c).count == 0:
        channels(w, c).target = operators(w, stream.target).base + index
    append(w, c, r)


@compiled
def _emit(w: World, t: int, r: int, bits: np.uint64, s: int, output: int) -> None:
    stream, task = streams(w, s), tasks(w, t)
    stream.offered += 1.0
    record = records(w, r)
    sample = record.sample
    if stream.redraws:
        # Uniform below `keep`, as what decided before was.
        sample = uniform(mix(record.key ^ stream.sample_salt)) * record.keep
    if stream.keep < 1.0 and sample >= record.keep * stream.keep:
        stream.shed += 1.0
        task.shed += 1.0
        _note(w, SHED, t, r)
        return
    count = operators(w, stream.target).tasks
    if stream.wiring == BROADCAST:
        for i in range(count):
            _send(w, t, r, bits, sample, s, i)
    elif stream.wiring == KEY:
        _send(w, t, r, bits, sample, s, owner(w, s, r) - operators(w, stream.target).base)
    elif stream.wiring == FORWARD:
        _send(w, t, r, bits, sample, s, task.index % count)
    elif w.random_spread:
        _send(w, t, r, bits, sample, s, bucket(mix(bits + stream.salt), count))
    else:
        cursor = cursors(w, t * w.outputs + output)
        i = cursor.value % count
        if w.batch_spread == 0:
            cursor.value = i + 1
        elif channels(w, stream.base + task.index * stream.columns + i).count == 0:
            # The batch for this task has left: the next one opens elsewhere.
            i = (i + 1) % count
            cursor.value = i
        _send(w, t, r, bits, sample, s, i)


@compiled
def _complete(w: World, t: int) -> None:
    task, now = tasks(w, t), w.now
    operator = operators(w, task.operator)
    alternate = alternates(w, operator.alternate)
    r = task.record
    record = records(w, r)
    took = now - task.started
    task.service_n += 1.0
    task.service_1 += took
    task.service_2 += took * took
    task.processed += 1.0
    alternate.records_in += 1.0
    alternate.work_n += 1.0
    alternate.work_1 += task.own_work
    alternate.work_2 += task.own_work * task.own_work
    for c in range(w.constraints):
        if (
            operator_role(w, task.operator * w.constraints + c).value & LEAVE
            and clocks(w, r * w.constraints + c).value >= 0.0
        ):
            _count(w, c, now - clocks(w, r * w.constraints + c).value)
    _note(w, ENDED, t, r)
    if operator.sink >= 0:
        age = now - record.born
        sink_sums(w, 3 * operator.sink).value += 1.0
        sink_sums(w, 3 * operator.sink + 1).value += age
        sink_sums(w, 3 * operator.sink + 2).value += age * age
        sink_bins(w, operator.sink * w.bins + sketch_bin(age)).value += 1.0
    if record.stream >= 0 and streams(w, record.stream).side:
        count = 0
    elif operator.windowed and operator.window > 0.0:
        count = 1 if task.started - task.opened >= operator.window else 0
    elif operator.windowed:
        task.credit += alternate.selectivity
        count = int(task.credit + 1e-9)
        task.credit -= count
    else:
        count = int(alternate.selectivity)
        rest = alternate.selectivity - count
        if rest > 0.0 and uniform(mix(record.hash ^ (operator.salt + _COUNT))) < rest:
            count += 1
    task.emitted += count
    alternate.records_out += count
    for k in range(count):
        bits = record.hash if k == 0 else mix(record.hash + np.uint64(k) * GOLDEN)
        for j in range(operator.outs):
            _emit(w, t, r, bits, outs(w, operator.first_out + j).value, j)
    free_record(w, r)
    if operator.windowed:
        read = task.started - task.opened
        task.open_n += 1.0
        task.open_1 += read
        task.open_2 += read * read
        if count:
            # Read-write latency: from each read since the last write until this write.
            d = now - task.opened
            task.latency_n += task.open_n
            task.latency_1 += task.open_n * d - task.open_1
            task.latency_2 += task.open_n * d * d - 2.0 * d * task.open_1 + task.open_2
            task.open_n = 0.0
            task.open_1 = 0.0
            task.open_2 = 0.0
            task.opened = now
    elif task.blocked:
        task.lingering = 1
    else:
        task.latency_n += 1.0
        task.latency_1 += took
        task.latency_2 += took * took
    make_ready(w, t)


@compiled
def _serve(w: World, t: int) -> bool:
    """Start the task's next record if it can; True when a watched task has come to rest."""
    task = tasks(w, t)
    task.listed = 0
    if task.busy:
        return False
    if task.watched and (task.paused or (task.reserved == 0 and task.blocked == 0)):
        task.watched = 0
        w.idle = t
        return True
    if task.blocked or task.paused or task.queued == 0:
        return False
    now = w.now
    r = task.head
    record = records(w, r)
    task.head = record.next
    task.queued -= 1
    task.reserved -= 1
    admit(w, t)
    s = record.stream
    if s >= 0:
        stream = streams(w, s)
        passed = now - record.emitted
        stream.latency_n += 1.0
        stream.latency_1 += passed
        stream.latency_2 += passed * passed
    for c in range(w.constraints):
        if (
            s >= 0
            and stream_role(w, s * w.constraints + c).value & LEAVE
            and clocks(w, r * w.constraints + c).value >= 0.0
        ):
            _count(w, c, now - clocks(w, r * w.constraints + c).value)
        if operator_role(w, task.operator * w.constraints + c).value & ENTER:
            clocks(w, r * w.constraints + c).value = now
    operator = operators(w, task.operator)
    if operator.source:
        record.keep = operator.keep
        if record.sample >= operator.keep:
            task.shed += 1.0
            task.dropped += 1.0
            _note(w, SHED, t, r)
            free_record(w, r)
            make_ready(w, t)
            return False
    alternate = alternates(w, operator.alternate)
    task.own_work = 0.0
    if alternate.cost > 0.0:
        bits = mix(record.hash ^ (operator.salt + _WORK))
        task.own_work = alternate.cost * positive(bits, alternate.kind, alternate.cv)
    work = task.own_work + task.overhead
    task.overhead = 0.0
    task.record = r
    task.started = now
    _note(w, STARTED, t, r)
    if work > 0.0:
        begin(w, t, work)
    else:
        _complete(w, t)
    return False


@compiled
def advance(w: World, until: float) -> int:
    """Let everything happen that is due by `until`; says why it came back earlier, if it did."""
    while True:
        if w.free_records < w.reserve or w.free_events < w.reserve:
            return SHORT
        if w.trace_rows > 0 and w.noted + w.reserve > w.trace_rows:
            return TRACED
        if w.ready_tasks > 0:
            w.ready_tasks -= 1
            if _serve(w, ready(w, w.ready_tasks).value):
                return IDLE
            continue
        if w.scheduled == 0 or agenda(w, 0).time > until:
            w.now = max(w.now, until)
            return DONE
        w.now = agenda(w, 0).time
        e = agenda(w, 0).event
        event = events(w, e)
        if event.kind == FINISH:
            _complete(w, finish(w, event.subject))
        elif event.kind == ARRIVAL:
            _arrive(w, event.subject)
        else:
            c = event.subject
            withdraw(w, e)
            if event.kind == DEADLINE:
                channels(w, c).event = -1
                free_event(w, e)
                try_flush(w, c)
            else:
                channels(w, c).on_the_way -= 1
                deliver(w, c, event.record, event.count, event.target, event.remote)
                free_event(w, e)
