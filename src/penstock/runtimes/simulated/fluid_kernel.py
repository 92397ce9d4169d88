"""The fluid simulation: in every step each task processes what its share of a core, its senders and its receivers
allow. Records are real numbers; waits come from backlog and from Kingman's formula.
"""

from __future__ import annotations

import math

from penstock.runtimes.simulated.compiled import compiled
from penstock.runtimes.simulated.flows import Floats, Flows
from penstock.runtimes.simulated.kernel import sketch_bin
from penstock.runtimes.simulated.processors import LEAST_SHARE
from penstock.runtimes.simulated.tables import BROADCAST, CARRY, ENTER, FORWARD, KEY, LEAVE, SPREAD

MOST_UTILISED = 0.98
"""Kingman's wait is infinite at full use; a queue that has stood there for a while is backlog, counted as such."""

NOTHING = 1e-9
"""Records in a step that are moved and counted like others, but too few to measure times on."""

_PAUSED, _FREE = -1.0, -2.0


@compiled
def _feed(f: Flows, now: float, step: float) -> None:
    """Bring what the loads produce in this step."""
    for i in range(len(f.f_operator)):
        t, until, amount = now, now + step, 0.0
        while t < until:
            p = f.f_position[i]
            last = p + 1 == f.f_count[i]
            end = f.f_cycle[i] + (f.f_period[i] if last else f.load_times[f.f_first[i] + p + 1])
            stop = min(end, until)
            amount += max(stop - t, 0.0) * f.load_rates[f.f_first[i] + p]
            t = max(t, stop)
            if end <= until:
                if last:
                    f.f_position[i] = 0
                    f.f_cycle[i] += f.f_period[i]
                else:
                    f.f_position[i] = p + 1
        o = f.f_operator[i]
        base, count = f.o_base[o], f.o_tasks[o]
        if f.f_index[i] >= 0:
            f.t_inflow[base + f.f_index[i]] += amount
        else:
            for t0 in range(base, base + count):
                f.t_inflow[t0] += amount / count


@compiled
def _batch(f: Flows, s: int, now: float, step: float) -> None:
    """Set how many records a stream's messages have, and their mean wait for them to leave.

    A batch opens with a record and takes those of the next D seconds. With Poisson arrivals at rate λ on a channel
    that makes 1 + λD, of which the first waits D and the others D/2 on average; one that fills before, at n
    records, stays open for (n-1)/λ.
    """
    a, b = f.s_source[s], f.s_target[s]
    pairs = f.o_tasks[a] * (1.0 if f.s_wiring[s] == FORWARD else float(f.o_tasks[b]))
    each, deadline = f.s_rate[s] / step / pairs, f.s_deadline[s]
    f.s_each[s] = 1.0
    f.s_wait_s[s] = 0.0
    if deadline > 0.0 and f.s_rate[s] > NOTHING:
        more = each * deadline
        if 1.0 + more >= f.s_batch[s]:
            f.s_each[s] = f.s_batch[s]
            f.s_wait_s[s] = min((f.s_batch[s] - 1.0) / each / 2.0, now)
        else:
            f.s_each[s] = 1.0 + more
            f.s_wait_s[s] = deadline * (1.0 + more / 2.0) / (1.0 + more)


@compiled
def _price(f: Flows, now: float, step: float, send_s: float, receive_s: float) -> None:
    """Set what a record costs each operator, with its part of the messages received and sent (as in the last step)."""
    for o in range(len(f.o_base)):
        f.o_work[o] = f.o_cost[o]
    for s in range(len(f.s_source)):
        _batch(f, s, now, step)
        messages = f.s_rate[s] * f.s_remote[s] / f.s_each[s]
        a, b = f.s_source[s], f.s_target[s]
        if f.o_done[a] > 0.0:
            f.o_work[a] += send_s * messages / f.o_done[a]
        if f.o_inflow[b] > 0.0:
            f.o_work[b] += receive_s * messages / f.o_inflow[b]


@compiled
def _share_cores(f: Flows, step: float) -> None:
    """Give every task its part of its node: what it needs, or, where that is too much, the same for all."""
    need = f.t_capacity
    for n in range(len(f.n_cores)):
        here = f.by_node[f.node_first[n] : f.node_first[n + 1]]
        cores, speed = max(f.n_cores[n] - f.n_foreign[n], f.n_cores[n] * LEAST_SHARE), f.n_speed[n]
        total, running = 0.0, 0
        for t in here:
            o = f.t_operator[t]
            f.t_ready[t] = (f.t_queue[t] + (f.t_inflow[t] if f.o_source[o] else f.t_before[t])) * f.o_keep[o]
            if f.t_paused[t]:
                need[t] = _PAUSED
            elif f.o_work[o] == 0.0:
                need[t] = _FREE
            else:
                need[t] = min(1.0, f.t_ready[t] * f.o_work[o] / speed / step)
                total += need[t]
                running += 1
        level = 1.0
        if total > cores:
            # The level at which all of the node is used when who needs less keeps what it needs.
            level = cores / running
            while True:
                modest, many = 0.0, 0
                for t in here:
                    if 0.0 <= need[t] <= level:
                        modest += need[t]
                        many += 1
                higher = (cores - modest) / (running - many) if many < running else level
                if higher <= level:
                    break
                level = higher
        f.n_level[n] = min(level, 1.0)
        spare = (cores - total) / running if total < cores and running else 0.0
        for t in here:
            if need[t] == _PAUSED:
                f.t_capacity[t] = 0.0
            elif need[t] == _FREE:
                f.t_capacity[t] = math.inf
            else:
                core = min(need[t] + spare, f.n_level[n])
                f.t_capacity[t] = core * speed * step / f.o_work[f.t_operator[t]]
            f.t_ready[t] = min(f.t_ready[t], f.t_capacity[t])


@compiled
def _receiver(f: Flows, s: int, t: int) -> int:
    """Whom a task sends to on a forward stream."""
    b = f.s_target[s]
    return int(f.o_base[b] + (t - f.o_base[f.s_source[s]]) % f.o_tasks[b])


@compiled
def _copies(f: Flows, s: int) -> float:
    """How many tasks get each record of a stream."""
    return float(f.o_tasks[f.s_target[s]]) if f.s_wiring[s] == BROADCAST else 1.0


@compiled
def _deal(f: Flows, s: int, amount: float, into: Floats) -> None:
    """Add what all of a stream carries to its receivers."""
    b = f.s_target[s]
    base, count = f.o_base[b], f.o_tasks[b]
    if f.s_wiring[s] == KEY:
        for t in range(base, base + count):
            into[t] += amount * f.t_share[t]
    else:
        part = amount if f.s_wiring[s] == BROADCAST else amount / count
        for t in range(base, base + count):
            into[t] += part


@compiled
def _cross(f: Flows, s: int, sending: Floats, factor: float, out: Floats, into: Floats) -> float:
    """Add the bytes of a stream that cross between nodes; the sum of them. `sending` times `factor` is records."""
    a, b = f.s_source[s], f.s_target[s]
    size, remote = factor * _copies(f, s) * f.s_record_bytes[s], 0.0
    forward, total = f.s_wiring[s] == FORWARD, 0.0
    f.n_local[:] = 0.0
    for t in range(f.o_base[a], f.o_base[a] + f.o_most[a]):
        n = f.t_node[t]
        if n < 0:
            continue
        amount = sending[t] * size
        if forward:
            m = f.t_node[_receiver(f, s, t)]
            if m != n:
                out[n] += amount
                into[m] += amount
                remote += amount
        else:
            f.n_local[n] += amount
            total += amount
    if not forward:
        for n in range(len(f.n_cores)):
            leaving = f.n_local[n] * (1.0 - f.on_node[b, n])
            out[n] += leaving
            remote += leaving
            into[n] += f.on_node[b, n] * (total - f.n_local[n])
    return remote


@compiled
def _wish(f: Flows) -> None:
    """Add up what every task would be sent, and what every node would send and receive."""
    f.t_wanted[:] = 0.0
    f.n_out[:] = 0.0
    f.n_in[:] = 0.0
    for s in range(len(f.s_source)):
        a = f.s_source[s]
        factor, total = f.o_selectivity[a] * f.s_keep[s], 0.0
        for t in range(f.o_base[a], f.o_base[a] + f.o_most[a]):
            if f.t_node[t] >= 0:
                if f.s_wiring[s] == FORWARD:
                    f.t_wanted[_receiver(f, s, t)] += f.t_ready[t] * factor
                else:
                    total += f.t_ready[t] * factor
        if f.s_wiring[s] != FORWARD:
            _deal(f, s, total, f.t_wanted)
        _cross(f, s, f.t_ready, factor, f.n_out, f.n_in)


@compiled
def _hold_back(f: Flows, step: float) -> None:
    """Lower what tasks will process to what their receivers' queues and the network take, from the sinks back."""
    for n in range(len(f.n_cores)):
        most = f.n_bandwidth[n] * step
        f.n_out[n] = min(1.0, most / f.n_out[n]) if f.n_out[n] > 0.0 else 1.0
        f.n_in[n] = min(1.0, most / f.n_in[n]) if f.n_in[n] > 0.0 else 1.0
    for at in range(len(f.order) - 1, -1, -1):
        o = f.order[at]
        least = 1.0
        for t in range(f.o_base[o], f.o_base[o] + f.o_most[o]):
            n = f.t_node[t]
            if n < 0:
                continue
            passing = 1.0
            for j in range(f.out_first[o], f.out_first[o + 1]):
                s = f.outs[j]
                if f.s_wiring[s] == FORWARD:
                    to = _receiver(f, s, t)
                    passing = min(passing, f.t_accept[to])
                    if f.t_node[to] != n:
                        passing = min(passing, min(f.n_out[n], f.n_in[f.t_node[to]]))
                else:
                    passing = min(passing, f.o_accept[f.s_target[s]])
                    if f.on_node[f.s_target[s], n] < 1.0:
                        passing = min(passing, f.n_out[n])
            room = max(f.t_limit[t] - f.t_queue[t], 0.0) + f.t_ready[t] * passing
            f.t_accept[t] = min(1.0, room / f.t_wanted[t]) if f.t_wanted[t] > room else 1.0
            if passing < 1.0:
                f.t_capacity[t] = f.t_ready[t] * passing
            if t - f.o_base[o] < f.o_tasks[o]:
                least = min(least, min(f.t_accept[t], f.n_in[n]))
        f.o_accept[o] = least


@compiled
def _add(sums: Floats, row: int, weight: float, mean: float, square: float) -> None:
    sums[row, 0] += weight
    sums[row, 1] += weight * mean
    sums[row, 2] += weight * square


@compiled
def _process(f: Flows, t: int, o: int, now: float, step: float) -> float:
    """Let one task process what it can; the mean age of what leaves it. `t_ready` holds how much that is."""
    n, keep = f.t_node[t], f.o_keep[o]
    arrived = f.t_inflow[t]
    there = f.t_queue[t] + arrived
    if arrived > 0.0:
        f.t_age[t] = f.t_age_sum[t] / arrived
    read = there if there * keep <= f.t_capacity[t] else f.t_capacity[t] / keep
    done = read * keep
    f.t_queue[t] = there - read
    f.t_before[t] = arrived
    f.t_inflow[t] = 0.0
    f.t_age_sum[t] = 0.0
    f.t_ready[t] = done
    f.t_arrived[t] += arrived
    f.t_processed[t] += done
    f.t_dropped[t] += read - done
    f.t_shed[t] += read - done
    f.t_emitted[t] += done * f.o_selectivity[o]
    f.o_done[o] += done
    if done <= NOTHING:
        return 0.0
    cpu = done * f.o_work[o] / f.n_speed[n]
    busy = min(cpu / f.n_level[n], step)
    f.t_cpu_s[t] += cpu
    f.t_busy_s[t] += busy
    f.n_cpu_s[n] += cpu
    f.n_busy_s[n] += busy
    used, service = min(busy / step, MOST_UTILISED), f.o_work[o] / f.n_speed[n] / f.n_level[n]
    # Chance in arrivals and services makes a queue of Kingman's (1961) mean, to which it comes with the relaxation
    # time of a queue in heavy traffic (M/M/1: S/(1-√ρ)², about 4S/(1-ρ)²).
    c2 = f.o_ca2[o] + f.o_cs2[o]
    if c2 > 0.0 and service > 0.0:
        relaxation = 2.0 * c2 * service / (1.0 - used) ** 2
        kingman = used / (1.0 - used) * service * c2 / 2.0
        f.t_chance[t] += (kingman - f.t_chance[t]) * (1.0 - math.exp(-step / relaxation))
    # Those who wait are those who came during the wait of the one who goes in now (Little's law).
    # None of them can have waited for longer than there has been time.
    wait = min(f.t_queue[t] / max(arrived, read) * step + f.t_chance[t], now)
    latency = service
    if f.o_windowed[o] and 0.0 < f.o_selectivity[o] < 1.0:
        # A write follows every 1/selectivity reads: half of that passes from a read to the next write.
        latency = min(latency + (1.0 / f.o_selectivity[o] - 1.0) / 2.0 * step / done, now)
    _add(f.t_latency, t, done, latency, latency * latency)
    f.o_busy[o] += busy
    f.o_latency[o] += done * latency
    f.o_wait[o] += done * wait
    f.o_wait2[o] += done * wait * wait
    return float(f.t_age[t] + wait + latency)


@compiled
def _pass_on(f: Flows, s: int, step: float, aged: float) -> None:
    """Put what a stream's source has done in this step onto the stream; `aged` is its mean age."""
    a, b = f.s_source[s], f.s_target[s]
    out = f.o_done[a] * f.o_selectivity[a]
    kept = out * f.s_keep[s]
    sent = kept * _copies(f, s)
    remote = _cross(f, s, f.t_ready, f.o_selectivity[a] * f.s_keep[s], f.n_bytes_out, f.n_bytes_in)
    size = sent * f.s_record_bytes[s]
    f.s_offered[s] += out
    f.s_shed[s] += out - kept
    f.s_sent[s] += sent
    f.s_bytes[s] += size
    f.s_remote_bytes[s] += remote
    f.s_rate[s] = sent
    f.s_remote[s] = remote / size if size > 0.0 else 0.0
    if out > 0.0 and f.s_keep[s] < 1.0:
        for t in range(f.o_base[a], f.o_base[a] + f.o_most[a]):
            if f.t_node[t] >= 0:
                f.t_shed[t] += f.t_ready[t] * f.o_selectivity[a] * (1.0 - f.s_keep[s])
    if f.s_wiring[s] != FORWARD:
        _deal(f, s, kept, f.t_inflow)
        _deal(f, s, kept * (aged + f.s_wait_s[s] + f.s_link_s[s]), f.t_age_sum)
    # Departures, splitting and merging as in the queueing network analyzer (Whitt 1983).
    busy = min(f.o_busy[a] / step / f.o_tasks[a], 1.0)
    departing = busy * busy * f.o_cs2[a] + (1.0 - busy * busy) * f.o_ca2[a]
    split = f.s_wiring[s] == KEY or f.s_wiring[s] == SPREAD
    f.o_ca2_sum[b] += sent * (1.0 + (departing - 1.0) / (f.o_tasks[b] if split else 1.0))
    f.o_inflow[b] += sent


@compiled
def _flow(f: Flows, now: float, step: float) -> None:
    """Let everything move, operator by operator along the streams."""
    f.o_ca2_sum[:] = 0.0
    f.o_inflow[:] = 0.0
    f.o_done[:] = 0.0
    f.o_busy[:] = 0.0
    f.o_latency[:] = 0.0
    f.o_wait[:] = 0.0
    f.o_wait2[:] = 0.0
    for at in range(len(f.order)):
        o = f.order[at]
        if f.o_inflow[o] > 0.0:
            f.o_ca2[o] = f.o_ca2_sum[o] / f.o_inflow[o]
        aged = 0.0
        for t in range(f.o_base[o], f.o_base[o] + f.o_most[o]):
            if f.t_node[t] < 0:
                continue
            age = _process(f, t, o, now + step, step)
            done = f.t_ready[t]
            if done <= 0.0:
                continue
            aged += done * age
            if f.o_sink[o] >= 0 and done > NOTHING:
                _add(f.k_sums, f.o_sink[o], done, age, age * age)
                f.k_bins[f.o_sink[o], sketch_bin(age)] += done
            for j in range(f.out_first[o], f.out_first[o + 1]):
                s = f.outs[j]
                if f.s_wiring[s] == FORWARD:
                    kept, to = done * f.o_selectivity[o] * f.s_keep[s], _receiver(f, s, t)
                    f.t_inflow[to] += kept
                    f.t_age_sum[to] += kept * (age + f.s_wait_s[s] + f.s_link_s[s])
        done = f.o_done[o]
        if done > 0.0:
            aged /= done
            f.o_latency[o] /= done
            f.o_wait[o] /= done
            f.o_wait2[o] /= done
            f.a_in[f.o_alternate[o]] += done
            f.a_out[f.o_alternate[o]] += done * f.o_selectivity[o]
        for j in range(f.out_first[o], f.out_first[o + 1]):
            _pass_on(f, f.outs[j], step, aged)


@compiled
def _account(f: Flows) -> None:
    """Add up the latencies of streams, and of sequences, of which each step gives one value."""
    for s in range(len(f.s_source)):
        b, sent = f.s_target[s], f.s_rate[s]
        if sent > NOTHING and f.o_done[b] > NOTHING:
            fixed = f.s_wait_s[s] + f.s_link_s[s]
            square = fixed * fixed + 2.0 * fixed * f.o_wait[b] + f.o_wait2[b]
            _add(f.s_latency, s, sent, fixed + f.o_wait[b], square)
            _add(f.s_wait, s, sent, f.s_wait_s[s], f.s_wait_s[s] * f.s_wait_s[s])
    for c in range(len(f.c_last)):
        value, entering, enter_weight, leaving, leave_weight = 0.0, 0.0, 0.0, 0.0, 0.0
        for o in range(len(f.o_base)):
            if f.c_operator[c, o]:
                value += f.o_latency[o]
        for s in range(len(f.s_source)):
            role = f.c_role[s, c]
            passed = f.s_wait_s[s] + f.s_link_s[s] + f.o_wait[f.s_target[s]]
            if role & ENTER:
                entering += f.s_rate[s] * passed
                enter_weight += f.s_rate[s]
            elif role & LEAVE:
                leaving += f.s_rate[s] * passed
                leave_weight += f.s_rate[s]
            elif role & CARRY:
                value += passed
        value += (entering / enter_weight if enter_weight > 0.0 else 0.0) + (
            leaving / leave_weight if leave_weight > 0.0 else 0.0
        )
        if f.o_done[f.c_last[c]] > NOTHING:
            f.c_bins[c, sketch_bin(value)] += f.o_done[f.c_last[c]]


@compiled
def run_steps(f: Flows, first: int, steps: int, step: float, send_s: float, receive_s: float) -> int:
    """Take `steps` steps, or fewer when a watched task has emptied; how many it took."""
    for k in range(steps):
        now = (first + k) * step
        _price(f, now, step, send_s, receive_s)
        _feed(f, now, step)
        _share_cores(f, step)
        _wish(f)
        _hold_back(f, step)
        _flow(f, now, step)
        _account(f)
        for t in range(len(f.t_watched)):
            if f.t_watched[t] and f.t_queue[t] + f.t_inflow[t] <= 0.0:
                return k + 1
    return steps
