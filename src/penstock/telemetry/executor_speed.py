"""How fast each executor is beside the others, from what tasks of the same kind took there.

A small robust regression with effects of operators, batches and executors:

    seconds of a task = (a_k + b_k · records) · B_t · F_e      k: kind (operator), t: batch, e: executor

The line of a kind comes from decayed least squares with what an executor took more or less in a batch taken out; B_t
and F_e from a median polish of the logs of what executors took over what their tasks would usually take. F_e is the
mean over the batches since an executor last changed, which is where the means before and after differ most: a step
shows within a few batches, noise averages out over many.
Nothing of a host is needed, so a slow one shows on any query in any language. A value in, a value out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from penstock.arrays import Bools, Floats, Ints

KEPT = 16
"""Batches that are remembered of each executor."""
LEAST = 4
"""Batches that must agree before an executor is called slow, or fast."""
COLD = 4
"""First batches of an executor that say nothing: its JVM still compiles."""
FORGET = 0.9
"""How much of the weight of earlier batches is left in the line of a kind after one more."""
SIGMAS = 5
"""Standard errors that an executor must be away from the usual one."""
FEW = 6.0
"""Of these, how many times more where noise is known from a single difference of two batches."""
LEAST_CHANGE = 0.18
"""And the least change, in log units (a fifth): below, nothing is worth doing."""
APART = 4
"""Batches apart that have little of each other's mood."""
CUT_SIGMAS = 3.5
"""Standard errors by which newer batches of an executor must differ from older ones to be of another time."""
JUMP_SIGMAS = 3.0
"""A batch this far from the others of its time counts as this far."""
LEAST_NOISE = 0.02
"""In log units: no two batches agree better than this by more than luck."""
SETTLED, UNSETTLED_NOISE = 6, 0.2
"""Batches from which noise is taken as measured, and the least that is assumed before."""
CLEARLY = 0.25
"""In log units: an executor that is this far from the others in a batch does not bend the lines of kinds."""
LEAP = 0.4
"""In log units: a task that is this far from those beside it counts as this far."""
HUBER_STEPS = 3
LEAST_S = 1e-4
"""Spark counts milliseconds: below, a task says nothing of speed."""
LEVERAGE = 0.1
"""How much records per task must vary, as a share of their mean, to tell what records cost from what tasks cost."""
KINDS = 256
"""Kinds whose lines are kept."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ExecutorSpeeds:
    """What is known so far; `observed` makes the next."""

    lines: Mapping[str, Floats]
    """Kind to its decayed sums: tasks, Σ records, Σ seconds, Σ records², Σ records · seconds."""
    executors: tuple[str, ...]
    batches: Ints
    """[executor]: how many batches it took part in."""
    logs: Floats
    """[executor, batch]: log of what it took over the usual, oldest first; NaN: no part in it."""
    told: Floats
    """[executor]: seconds there over seconds on the usual executor; 1: no different as far as anybody can tell."""

    @classmethod
    def nothing(cls) -> ExecutorSpeeds:
        """Before the first batch."""
        none = np.zeros(0)
        return cls(lines={}, executors=(), batches=np.zeros(0, np.int64), logs=np.zeros((0, 0)), told=none)

    def slowness(self, executors: Sequence[str]) -> tuple[Floats, Bools]:
        """(seconds there over seconds on the usual executor; whether there was enough to judge by) of each."""
        rows = {id_: i for i, id_ in enumerate(self.executors)}
        at = np.array([rows.get(id_, -1) for id_ in executors], np.int64)
        judged = np.isfinite(self.logs).sum(axis=1) >= LEAST if len(self.executors) else np.zeros(0, np.bool_)
        known = np.array([a >= 0 and bool(judged[a]) for a in at], np.bool_)
        return np.where(known, self.told[at] if len(self.told) else 1.0, 1.0), known


def observed(
    speeds: ExecutorSpeeds, kinds: Sequence[str], executors: Sequence[str], records: Floats, seconds: Floats
) -> ExecutorSpeeds:
    """With one batch more; the arguments have an entry for each of its tasks."""
    if not len(seconds) or float(seconds.sum()) <= 0:
        return speeds
    speeds = _joined_by(speeds, executors)
    rows = {id_: i for i, id_ in enumerate(speeds.executors)}
    ran = np.array([rows[e] for e in executors], np.int64)
    names, kind = np.unique(np.asarray(kinds, dtype=object).astype(str), return_inverse=True)
    old = np.array([speeds.lines.get(name, np.zeros(5)) for name in names.tolist()])
    # Where a kind is new, its first line is of times as they are.
    sums, log = _with_batch(old, kind, records, seconds / speeds.told[ran]), np.zeros(0)
    for lines in (np.where(old[:, :1] > 0, old, sums), None):
        intercept, slope = _lines(sums if lines is None else lines)
        usual = np.maximum(intercept[kind] + slope[kind] * records, 1e-6)
        log = _log_ratios(ran, seconds, usual, len(speeds.executors))
        # A slow executor takes no part in the lines of kinds. What may be an error of the line is left to the line.
        beside = log - np.nanmedian(log)
        beside = np.where(np.abs(beside) > CLEARLY, beside, 0.0)
        sums = _with_batch(old, kind, records, seconds / np.exp(beside[ran]))
    took_part = np.isfinite(log)
    batches = speeds.batches + took_part
    log = np.where(batches > COLD, log, np.nan)
    logs = np.concatenate([speeds.logs, log[:, None]], axis=1)[:, -KEPT:]
    kept = {**speeds.lines, **dict(zip(names.tolist(), sums, strict=True))}
    if len(kept) > KINDS:
        kept = dict(zip(names.tolist(), sums, strict=True))
    after = replace(speeds, lines=kept, batches=batches, logs=logs)
    return _without_gone(replace(after, told=_told(logs, speeds.told)))


def _with_batch(old: Floats, kind: Ints, records: Floats, seconds: Floats) -> Floats:
    parts = (np.ones(len(kind)), records, seconds, records * records, records * seconds)
    return FORGET * old + np.stack([np.bincount(kind, part, len(old)) for part in parts], axis=1)


def _joined_by(speeds: ExecutorSpeeds, executors: Sequence[str]) -> ExecutorSpeeds:
    new = tuple(dict.fromkeys(e for e in executors if e not in speeds.executors))
    if not new:
        return speeds
    blank = np.full((len(new), speeds.logs.shape[1]), np.nan)
    return replace(
        speeds,
        executors=(*speeds.executors, *new),
        batches=np.concatenate([speeds.batches, np.zeros(len(new), np.int64)]),
        logs=np.concatenate([speeds.logs, blank]),
        told=np.concatenate([speeds.told, np.ones(len(new))]),
    )


def _without_gone(speeds: ExecutorSpeeds) -> ExecutorSpeeds:
    """Executors that took no part for as long as anything is remembered are forgotten, unless they are new."""
    stays = np.isfinite(speeds.logs).any(axis=1) | (speeds.batches <= COLD)
    if stays.all():
        return speeds
    return replace(
        speeds,
        executors=tuple(id_ for id_, here in zip(speeds.executors, stays.tolist(), strict=True) if here),
        batches=speeds.batches[stays],
        logs=speeds.logs[stays],
        told=speeds.told[stays],
    )


def _lines(sums: Floats) -> tuple[Floats, Floats]:
    """(seconds of a task without records, seconds of a record) of each kind, neither below 0.

    Where all tasks have about as many records, everything counts as work for records.
    """
    n, x, y, xx, xy = sums.T
    n = np.maximum(n, 1e-12)
    variance = xx / n - (x / n) ** 2
    tells = (x > 0) & (variance > (LEVERAGE * x / n) ** 2)
    slope = np.where(tells, (xy / n - x * y / n**2) / np.where(tells, variance, 1.0), 0.0)
    slope = np.clip(slope, 0.0, np.where(x > 0, y / np.where(x > 0, x, 1.0), 0.0))
    slope = np.where((x > 0) & ~tells, y / np.where(x > 0, x, 1.0), slope)
    return np.maximum((y - slope * x) / n, 0.0), slope


def _log_ratios(ran: Ints, seconds: Floats, usual: Floats, count: int) -> Floats:
    """[executor]: log of what its tasks took over what they would usually take; NaN without a task.

    A mean of the tasks' logs, without the pauses and leaps of single ones (Huber). All tasks from the median one up
    weigh the same, so that none is judged by its hot key; shorter ones, of which the clock says less, weigh less.
    """
    log = np.log(np.maximum(seconds, LEAST_S) / np.maximum(usual, LEAST_S))
    found = np.full(count, np.nan)
    order = np.argsort(ran, kind="stable")
    starts = np.searchsorted(ran[order], np.arange(count + 1))
    for e in np.flatnonzero(np.diff(starts)).tolist():
        mine = order[starts[e] : starts[e + 1]]
        weight = np.minimum(usual[mine], np.median(usual[mine]))
        centre = _weighted_median(log[mine], weight)
        for _ in range(HUBER_STEPS):
            centre += float(np.average(np.clip(log[mine] - centre, -LEAP, LEAP), weights=weight))
        found[e] = centre
    return found


def _weighted_median(values: Floats, weight: Floats) -> float:
    order = np.argsort(values)
    below = np.cumsum(weight[order])
    return float(values[order[int(np.searchsorted(below, below[-1] / 2))]])


def _told(logs: Floats, before: Floats) -> Floats:
    """[executor]: its factor, 1 where it does not differ for sure; what is unsure stays as it was told before."""
    present = np.isfinite(logs)
    effect = np.zeros(len(logs))
    length = np.zeros(len(logs), np.int64)
    noise = np.full(len(logs), LEAST_NOISE)
    for _ in range(4):  # a median polish: effects of batches, then of executors
        centred = logs - effect[:, None]
        batch = np.zeros(logs.shape[1])
        some = present.any(axis=0)
        if some.any():
            batch[some] = np.nanmedian(centred[:, some], axis=0)
        left = logs - batch
        noise = _noise(left)
        effect, length = _newest_means(left, noise)
    judged = length > 0
    if judged.sum() < 2:
        return np.ones(len(logs))
    # Of two executors the faster one is the measure: the slower is the one in trouble.
    effect = effect - float(np.quantile(effect[judged], 0.5, method="lower"))
    sure = length >= LEAST
    # Beside the mean of n, noise looks smaller by (n - 1) / n; what the usual executor is has an error of its own.
    among = float(judged.sum())
    noise = noise * float(np.sqrt(among / (among - 1) * (1 + 0.5 * np.pi / among)))
    # And noise that is known from few batches may be more.
    steps = max(1.0, (among - 1) * float(present.any(axis=0).sum() - 1))
    error = SIGMAS * (1.0 + FEW / steps) * noise / np.sqrt(np.maximum(length, 1))
    differs = np.abs(effect) > np.maximum(LEAST_CHANGE, error)
    return np.where(sure, np.where(differs, np.exp(effect), 1.0), before)


def _noise(left: Floats) -> Floats:
    """Standard deviation of a batch of each executor, from differences of batches: a step counts for little.

    That of all together, or its own where it is larger: one that holds a hot key hangs on a single task. Batches that
    follow one another are alike on a machine that has its moods, and then a mean of them is worth less than their
    number says: differences of batches further apart show it, and noise counts for more.
    """
    steps = np.abs(np.diff(left, axis=1))
    known = np.isfinite(steps)
    least = LEAST_NOISE if known.any(axis=0).sum() >= SETTLED else UNSETTLED_NOISE
    if not known.any():
        return np.full(len(left), least)
    near = float(np.median(steps[known]))
    own = np.full(len(left), near)
    many = known.sum(axis=1) >= SETTLED
    if many.any():
        own[many] = np.maximum(own[many], np.nanmedian(steps[many], axis=1))
    return np.maximum(least, 1.4826 * own / 2**0.5 * _moods(left, near))


def _moods(left: Floats, near: float) -> float:
    """By how much more noise counts because batches near each other are alike; 1: they are not.

    The median difference of batches that are `APART` over that of neighbours.
    """
    far = np.abs(left[:, APART:] - left[:, :-APART])
    far = far[np.isfinite(far)]
    if near <= 0 or len(far) < 2 * SETTLED:
        return 1.0
    return max(1.0, float(np.median(far)) / near)


def _newest_means(left: Floats, noise: Floats) -> tuple[Floats, Ints]:
    """(mean, number) of each executor's newest batches since it last changed; single leaps count as less."""
    means, numbers = np.zeros(len(left)), np.zeros(len(left), np.int64)
    for e, row in enumerate(left):
        seen = row[np.isfinite(row)]
        if len(seen):
            newest = _since_change(seen, float(noise[e]))
            centre, width = float(np.median(newest)), JUMP_SIGMAS * float(noise[e])
            means[e] = float(np.clip(newest, centre - width, centre + width).mean())
            numbers[e] = len(newest)
    return means, numbers


def _since_change(values: Floats, noise: float) -> Floats:
    """The values since the last change of their mean, the newest of which is last.

    The change is where the means before and after differ most, in standard errors, if that is by more than
    `CUT_SIGMAS`; of what is newer than it the same is asked again. A change that is small beside the noise of one batch
    shows in the means of a few, so half more time per task is not averaged away by the quiet time before it.
    """
    while len(values) > 1:
        total = np.cumsum(values)[:-1]
        before = np.arange(1, len(values))
        after = len(values) - before
        gap = np.abs((values.sum() - total) / after - total / before) * np.sqrt(before * after / len(values))
        cut = int(np.argmax(gap))
        if gap[cut] <= CUT_SIGMAS * noise or (after[cut] == 1 and len(values) > LEAST):
            return values
        values = values[cut + 1 :]
    return values
