"""The fluid simulation: in every step each task processes what its share of a core, its senders and its receivers
allow. Records are real numbers; waits come from backlog and from Kingman's formula.
"""

from __future__ import annotations

import math

from penstock.simulator.compiled import compiled
from penstock.simulator.discrete_kernel import sketch_bin
from penstock.simulator.discrete_tables import BROADCAST, CARRY, ENTER, FORWARD, LEAVE
from penstock.simulator.fluid_limits import (
    ask,
    copies,
    cross,
    hold_back,
    network,
    part_of,
    receiver,
    share_cores,
    wish,
)
from penstock.simulator.fluid_tables import (
    alternates,
    coming,
    constraint_bins,
    feeds,
    in_sequence,
    last,
    leaving,
    load_rates,
    load_times,
    nodes,
    operators,
    order,
    outs,
    role,
    sink_bins,
    sink_sums,
    streams,
    tasks,
)
from penstock.simulator.records import World

MOST_UTILISED = 0.98
"""Kingman's wait is infinite at full use; a queue that has stood there for a while is backlog, counted as such."""
NOTHING = 1e-9
"""Records in a step that are moved and counted like others, but too few to measure times on."""


@compiled
def _feed(w: World, now: float, step: float) -> None:
    """Bring what the loads produce in this step."""
    for i in range(w.feed_rows):
        feed = feeds(w, i)
        t, until, amount = now, now + step, 0.0
        while t < until:
            final = feed.position + 1 == feed.count
            end = feed.cycle + (feed.period if final else load_times(w, feed.first + feed.position + 1).value)
            stop = min(end, until)
            amount += max(stop - t, 0.0) * load_rates(w, feed.first + feed.position).value
            t = max(t, stop)
            if end <= until:
                feed.position = 0 if final else feed.position + 1
                feed.cycle += feed.period if final else 0.0
        operator = operators(w, feed.operator)
        if feed.index >= 0:
            tasks(w, operator.base + feed.index).inflow += amount
        else:
            for slot in range(operator.base, operator.base + operator.tasks):
                tasks(w, slot).inflow += amount / operator.tasks


@compiled
def _batch(w: World, s: int, now: float, step: float) -> None:
    """Set how many records a stream's messages have, and their mean wait for them to leave.

    A batch opens with a record and takes those of the next D seconds. With Poisson arrivals at rate λ on a channel
    that makes 1 + λD, of which the first waits D and the others D/2 on average; one that fills before, at n
    records, stays open for (n-1)/λ.
    """
    stream = streams(w, s)
    pairs = operators(w, stream.source).tasks * (
        1.0 if stream.wiring == FORWARD else float(operators(w, stream.target).tasks)
    )
    each, deadline = stream.last_rate / step / pairs, stream.deadline
    stream.each = 1.0
    stream.wait_s = 0.0
    if deadline > 0.0 and stream.last_rate > NOTHING:
        more = each * deadline
        if 1.0 + more >= stream.batch:
            stream.each = stream.batch
            stream.wait_s = min((stream.batch - 1.0) / each / 2.0, now)
        else:
            stream.each = 1.0 + more
            stream.wait_s = deadline * (1.0 + more / 2.0) / (1.0 + more)


@compiled
def _price(w: World, now: float, step: float) -> None:
    """Set what a record costs each operator, with its part of the messages received and sent (as in the last step)."""
    for o in range(w.operator_rows):
        operators(w, o).work = operators(w, o).cost
    for s in range(w.stream_rows):
        stream = streams(w, s)
        _batch(w, s, now, step)
        messages = stream.last_rate * stream.remote / stream.each
        source, target = operators(w, stream.source), operators(w, stream.target)
        if source.done > 0.0:
            source.work += w.send_s * messages / source.done
        if target.inflow > 0.0:
            target.work += w.receive_s * messages / target.inflow


@compiled
def _process(w: World, t: int, now: float, step: float) -> float:
    """Let one task process what it can, and set `ready` to how much that was; the mean age of what leaves it."""
    task = tasks(w, t)
    operator, node = operators(w, task.operator), nodes(w, task.node)
    arrived, keep = task.inflow, operator.keep
    there = task.queue + arrived
    if arrived > 0.0:
        task.age = task.age_sum / arrived
    read = there if there * keep <= task.capacity else task.capacity / keep
    done = read * keep
    task.queue = there - read
    task.before = arrived
    task.inflow = 0.0
    task.age_sum = 0.0
    task.ready = done
    task.done = done
    task.arrived += arrived
    task.processed += done
    task.dropped += read - done
    task.shed += read - done
    task.emitted += done * operator.selectivity
    operator.done += done
    if done <= NOTHING:
        return 0.0
    cpu = done * operator.work / node.speed
    busy = min(cpu / node.level, step)
    task.cpu_s += cpu
    task.busy_s += busy
    node.cpu_s += cpu
    node.busy_s += busy
    used, service = min(busy / step, MOST_UTILISED), operator.work / node.speed / node.level
    # Chance in arrivals and services makes a queue of Kingman's (1961) mean, to which it comes with the relaxation
    # time of a queue in heavy traffic (M/M/1: S/(1-√ρ)², about 4S/(1-ρ)²).
    c2 = operator.ca2 + operator.cs2
    if c2 > 0.0 and service > 0.0:
        relaxation = 2.0 * c2 * service / (1.0 - used) ** 2
        kingman = used / (1.0 - used) * service * c2 / 2.0
        task.chance += (kingman - task.chance) * (1.0 - math.exp(-step / relaxation))
    # Those who wait are those who came during the wait of the one who goes in now (Little's law); none of them can
    # have waited for longer than there has been time.
    wait = min(task.queue / max(arrived, read) * step + task.chance, now)
    latency = service
    if operator.windowed and 0.0 < operator.selectivity < 1.0:
        # A write follows every 1/selectivity reads: half of that passes from a read to the next write.
        latency = min(latency + (1.0 / operator.selectivity - 1.0) / 2.0 * step / done, now)
    task.latency_n += done
    task.latency_1 += done * latency
    task.latency_2 += done * latency * latency
    operator.busy += busy
    operator.latency += done * latency
    operator.wait += done * wait
    operator.wait2 += done * wait * wait
    return float(task.age + wait + latency)


@compiled
def _pass_on(w: World, s: int, step: float, aged: float) -> None:
    """Put what a stream's source has done in this step onto the stream; `aged` is its mean age."""
    stream = streams(w, s)
    source, target = operators(w, stream.source), operators(w, stream.target)
    out = source.done * source.selectivity
    kept = out * stream.keep
    sent = kept * copies(w, s)
    remote, size = cross(w, s), sent * stream.record_bytes
    for n in range(w.node_rows):
        nodes(w, n).bytes_out += leaving(w, n * w.stream_rows + s).value
        nodes(w, n).bytes_in += coming(w, n * w.stream_rows + s).value
    stream.offered += out
    stream.shed += out - kept
    stream.sent += sent
    stream.bytes += size
    stream.remote_bytes += remote
    stream.last_rate = sent
    stream.remote = remote / size if size > 0.0 else 0.0
    if stream.keep < 1.0:
        for t in range(source.base, source.base + source.most):
            if tasks(w, t).node >= 0:
                tasks(w, t).shed += tasks(w, t).ready * source.selectivity * (1.0 - stream.keep)
    if stream.wiring != FORWARD:
        for t in range(target.base, target.base + target.tasks):
            part = kept * part_of(w, s, t)
            tasks(w, t).inflow += part
            tasks(w, t).age_sum += part * (aged + stream.wait_s + stream.link_s)
    # Departures, splitting and merging as in the queueing network analyzer (Whitt 1983).
    busy = min(source.busy / step / source.tasks, 1.0)
    departing = busy * busy * source.cs2 + (1.0 - busy * busy) * source.ca2
    split = 1.0 if stream.wiring == FORWARD or stream.wiring == BROADCAST else 1.0 / target.tasks
    target.ca2_sum += sent * (1.0 + split * (departing - 1.0))
    target.inflow += sent


@compiled
def _flow(w: World, now: float, step: float) -> None:
    """Let everything move, operator by operator along the streams."""
    for o in range(w.operator_rows):
        operator = operators(w, o)
        operator.ca2_sum = 0.0
        operator.inflow = 0.0
        operator.done = 0.0
        operator.busy = 0.0
        operator.latency = 0.0
        operator.wait = 0.0
        operator.wait2 = 0.0
    for at in range(w.operator_rows):
        operator = operators(w, order(w, at).value)
        if operator.inflow > 0.0:
            operator.ca2 = operator.ca2_sum / operator.inflow
        aged = 0.0
        for t in range(operator.base, operator.base + operator.most):
            if tasks(w, t).node < 0:
                continue
            age = _process(w, t, now + step, step)
            done = tasks(w, t).ready
            if done <= 0.0:
                continue
            aged += done * age
            if operator.sink >= 0 and done > NOTHING:
                sink_sums(w, 3 * operator.sink).value += done
                sink_sums(w, 3 * operator.sink + 1).value += done * age
                sink_sums(w, 3 * operator.sink + 2).value += done * age * age
                sink_bins(w, operator.sink * w.bins + sketch_bin(age)).value += done
            for j in range(operator.first_out, operator.first_out + operator.outs):
                s = outs(w, j).value
                stream = streams(w, s)
                if stream.wiring == FORWARD:
                    to, kept = tasks(w, receiver(w, s, t)), done * operator.selectivity * stream.keep
                    to.inflow += kept
                    to.age_sum += kept * (age + stream.wait_s + stream.link_s)
        if operator.done > 0.0:
            aged /= operator.done
            operator.latency /= operator.done
            operator.wait /= operator.done
            operator.wait2 /= operator.done
            alternates(w, operator.alternate).records_in += operator.done
            alternates(w, operator.alternate).records_out += operator.done * operator.selectivity
        for j in range(operator.first_out, operator.first_out + operator.outs):
            _pass_on(w, outs(w, j).value, step, aged)


@compiled
def _account(w: World) -> None:
    """Add up the latencies of streams, and of sequences, of which each step gives one value."""
    for s in range(w.stream_rows):
        stream = streams(w, s)
        target, sent = operators(w, stream.target), stream.last_rate
        if sent > NOTHING and target.done > NOTHING:
            fixed = stream.wait_s + stream.link_s
            stream.latency_n += sent
            stream.latency_1 += sent * (fixed + target.wait)
            stream.latency_2 += sent * (fixed * fixed + 2.0 * fixed * target.wait + target.wait2)
            stream.wait_n += sent
            stream.wait_1 += sent * stream.wait_s
            stream.wait_2 += sent * stream.wait_s * stream.wait_s
    for c in range(w.constraints):
        value, entering, enter_rate, leaving_s, leave_rate = 0.0, 0.0, NOTHING, 0.0, NOTHING
        for o in range(w.operator_rows):
            if in_sequence(w, c * w.operator_rows + o).value:
                value += operators(w, o).latency
        for s in range(w.stream_rows):
            stream, part = streams(w, s), role(w, s * w.constraints + c).value
            passed = stream.wait_s + stream.link_s + operators(w, stream.target).wait
            if part & ENTER:
                entering += stream.last_rate * passed
                enter_rate += stream.last_rate
            elif part & LEAVE:
                leaving_s += stream.last_rate * passed
                leave_rate += stream.last_rate
            elif part & CARRY:
                value += passed
        value += entering / enter_rate + leaving_s / leave_rate
        through = operators(w, last(w, c).value).done
        if through > NOTHING:
            constraint_bins(w, c * w.bins + sketch_bin(value)).value += through


@compiled
def run_steps(w: World, first: int, steps: int, step: float) -> int:
    """Take `steps` steps, or fewer when a watched task has emptied; how many it took."""
    for k in range(steps):
        now = (first + k) * step
        _price(w, now, step)
        _feed(w, now, step)
        # First by the room in queues alone: only what can really flow competes for cores, and then for bandwidth.
        ask(w, step)
        wish(w)
        hold_back(w, False)
        share_cores(w, step)
        wish(w)
        hold_back(w, True)
        if network(w, step):
            wish(w)
            hold_back(w, True)
        _flow(w, now, step)
        _account(w)
        for t in range(w.task_rows):
            if tasks(w, t).watched and tasks(w, t).queue + tasks(w, t).inflow <= 0.0:
                return k + 1
    return steps
