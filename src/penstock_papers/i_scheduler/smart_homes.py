"""Smart homes: how much power every plug and every house will draw in the slice after the next.

Query 1 of the DEBS 2014 grand challenge (Ziekow, Jerzak), the first application of `i-scheduler.txt`: a diamond of
readings, predictions per plug beside predictions per house, and a sink. Time is cut in slices of 15 minutes. When
slice s_i of a plug or house is over,

    load(s_{i+2}) = (average(s_i) + median of the averages of earlier days' slices at the time of s_{i+2}) / 2,

or the average alone as long as there is no such slice. A house's average is the sum of its plugs' averages. A slice
is over when the plug, or house, reports from a later one.

Sums are taken in whole milliwatts, the resolution of the readings, so results do not depend on the order of additions.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from penstock.arrays import Ints
from penstock.dataflow import Connector, Dataflow, Load, constant, flow
from penstock.dataflow.connectors import discard, replay
from penstock_papers.common.chance import chance, choice
from penstock_papers.common.recordings import Recording

READING = "id long, time_s long, value double, property long, plug long, household long, house long"
PREDICTION = "house long, household long, plug long, slice long, load_w double"
WORK, LOAD = 0, 1
"""Values of `property`: energy so far in kWh, power just now in W."""
SLICE_S = 900
DAY_S = 86_400
DAYS = 28
"""Earlier days that are remembered of each time of day."""
WHOLE_HOUSE = -1
"""Household and plug of a prediction for a house."""

History = dict[int, list[float]]
"""Averages of past slices by their place in the day, oldest first."""


def loads_only(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The readings of power; those of energy are of no use here."""
    return batch.filter(pc.equal(batch.column("property"), LOAD))


@dataclass(frozen=True, slots=True, kw_only=True)
class PlugPrediction:
    """Predicts the load of one plug; state: the slice that is open, its total and readings, and the history."""

    slice_s: int = SLICE_S

    def __call__(
        self, key: tuple[int, int, int], rows: pa.RecordBatch, state: tuple[int, int, int, History] | None
    ) -> tuple[pa.RecordBatch | None, tuple[int, int, int, History]]:
        """(predictions of the slices that are over now, the state)."""
        current, total, count, history = state if state is not None else (-1, 0, 0, {})
        history, results = dict(history), []
        slices, milliwatts = self._readings(rows)
        cuts = np.flatnonzero(np.diff(slices, prepend=-2))
        totals, ends = np.add.reduceat(milliwatts, cuts), np.append(cuts[1:], len(slices))
        for slice_, added, readings in zip(slices[cuts].tolist(), totals.tolist(), ends - cuts, strict=True):
            if slice_ > current:
                if count:
                    average = total / count / 1000.0
                    results.append((current + 2, predict(history, current, average, DAY_S // self.slice_s)))
                current, total, count = slice_, 0, 0
            if slice_ == current:
                total, count = total + added, count + int(readings)
        return _predictions(*key, results), (current, total, count, history)

    def _readings(self, rows: pa.RecordBatch) -> tuple[Ints, Ints]:
        slices, milliwatts = slices_of(rows, self.slice_s), milliwatts_of(rows)
        order = np.argsort(slices, kind="stable")
        return slices[order], milliwatts[order]


@dataclass(frozen=True, slots=True, kw_only=True)
class HousePrediction:
    """Predicts the load of one house; state: the slice that is open, totals and readings by plug, and the history."""

    slice_s: int = SLICE_S

    def __call__(
        self,
        key: tuple[int],
        rows: pa.RecordBatch,
        state: tuple[int, dict[tuple[int, int], tuple[int, int]], History] | None,
    ) -> tuple[pa.RecordBatch | None, tuple[int, dict[tuple[int, int], tuple[int, int]], History]]:
        """(predictions of the slices that are over now, the state)."""
        current, plugs, history = state if state is not None else (-1, {}, {})
        plugs, history, results = dict(plugs), dict(history), []
        slices, milliwatts = slices_of(rows, self.slice_s), milliwatts_of(rows)
        households, numbers = rows.column("household").to_numpy(), rows.column("plug").to_numpy()
        order = np.lexsort((numbers, households, slices))
        groups = np.stack((slices, households, numbers))[:, order]
        cuts = np.flatnonzero(np.append(True, np.any(np.diff(groups, axis=1) != 0, axis=0)))
        totals, ends = np.add.reduceat(milliwatts[order], cuts), np.append(cuts[1:], len(order))
        found = zip(*groups[:, cuts].tolist(), totals.tolist(), (ends - cuts).tolist(), strict=True)
        for slice_, household, number, added, readings in found:
            if slice_ > current:
                if plugs:
                    average = math.fsum(total / count / 1000.0 for total, count in plugs.values())
                    results.append((current + 2, predict(history, current, average, DAY_S // self.slice_s)))
                current, plugs = slice_, {}
            if slice_ == current:
                total, count = plugs.get((household, number), (0, 0))
                plugs[household, number] = (total + added, count + readings)
        return _predictions(key[0], WHOLE_HOUSE, WHOLE_HOUSE, results), (current, plugs, history)


def predict(history: History, slice_: int, average: float, slices_per_day: int) -> float:
    """The load two slices after `slice_`, which had this average and is added to the history."""
    earlier = history.get((slice_ + 2) % slices_per_day)
    place = slice_ % slices_per_day
    history[place] = [*history.get(place, []), average][-DAYS:]
    return (average + median(earlier)) / 2 if earlier else average


def slices_of(rows: pa.RecordBatch, slice_s: int) -> Ints:
    """The slice of each reading, counted from the epoch."""
    return np.asarray(rows.column("time_s").to_numpy() // slice_s, np.int64)


def milliwatts_of(rows: pa.RecordBatch) -> Ints:
    """The readings in whole milliwatts."""
    return np.asarray(np.rint(rows.column("value").to_numpy() * 1000.0), np.int64)


def _predictions(
    house: int, household: int, plug: int, results: list[tuple[int, float]]
) -> pa.RecordBatch | None:
    if not results:
        return None
    count = len(results)
    return pa.RecordBatch.from_pydict(
        {
            "house": [house] * count,
            "household": [household] * count,
            "plug": [plug] * count,
            "slice": [slice_ for slice_, _ in results],
            "load_w": [load for _, load in results],
        }
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Homes:
    """A generator of plug readings: every `every_s` each plug tells its power, and then its energy.

    A fifth of the plugs are fridges, which cycle; the others are used by people: little at night, a peak in the
    morning and a larger one in the evening, more at weekends, on or off for a quarter of an hour at a time.
    """

    houses: int = 40
    households: int = 4
    plugs: int = 8
    """Per household."""
    every_s: int = 20
    start_s: int = 1_377_986_400
    """A Sunday, the first day of the challenge's data."""

    @property
    def per_tick(self) -> int:
        """Readings of all plugs at one moment."""
        return 2 * self.houses * self.households * self.plugs

    def __call__(self, start: int, stop: int) -> pa.RecordBatch:
        """Readings number `start` to `stop`."""
        ids = np.arange(start, stop, dtype=np.int64)
        tick, within = np.divmod(ids, self.per_tick)
        who, kind = np.divmod(within, 2)
        time_s = self.start_s + tick * self.every_s
        power = self._power(who, time_s)
        energy = np.round(who * 3.7 + (time_s - self.start_s) * 1.2e-5, 3)
        names = {
            "id": ids,
            "time_s": time_s,
            "value": np.where(kind == 0, power, energy),
            "property": np.where(kind == 0, LOAD, WORK),
            "plug": who % self.plugs,
            "household": who // self.plugs % self.households,
            "house": who // (self.plugs * self.households),
        }
        return pa.RecordBatch.from_pydict(names)

    def _power(self, who: Ints, time_s: Ints) -> NDArray[np.float64]:
        hour = time_s % DAY_S / 3600.0
        weekend = np.isin((time_s // DAY_S + 4) % 7, (0, 6))
        presence = (
            0.08 + 0.35 * np.exp(-(((hour - 7.5) / 1.5) ** 2)) + 0.6 * np.exp(-(((hour - 20) / 2.5) ** 2))
        )
        presence = np.minimum(1.0, np.where(weekend, 1.4, 1.0) * presence)
        turn = who * 1_000_003 + time_s // SLICE_S
        on = chance(turn, 1) < presence
        rated = 20.0 + 1980.0 * chance(who, 2) ** 3
        fridge = choice(who, 3, 5) == 0
        cycling = (time_s + 600 * choice(who, 4, 6)) % 3600 < 1500
        wobble = 0.9 + 0.2 * chance(who * 1_000_003 + time_s, 5)
        power = np.where(fridge, np.where(cycling, 90.0, 2.0), np.where(on, rated, 1.5)) * wobble
        return np.asarray(np.round(power, 3))


def recorded_readings(path: str) -> Recording:
    """The challenge's own file as a generator (id, timestamp, value, property, plug, household, house)."""
    names = ("id", "time_s", "value", "property", "plug", "household", "house")
    columns = tuple((name, "float64" if name == "value" else "int64") for name in names)
    return Recording(path=path, columns=columns, keep=names, times=("time_s",))


def smart_homes(
    *,
    load: Load | None = None,
    path: str | None = None,
    homes: Homes | None = None,
    slice_s: int = SLICE_S,
    tasks: int = 10,
    sink: Connector | None = None,
    max_rows_per_batch: int | None = None,
) -> Dataflow:
    """The dataflow; `path` is a file of the challenge, `homes` describes made readings instead.

    By default 40 houses, as in the challenge, at 2,000 readings a second, ten tasks per operator (the paper's).
    """
    if DAY_S % slice_s:
        raise ValueError(f"a day must be a whole number of slices, and {slice_s} s does not divide it")
    app = flow("smart-homes")
    readings: Any = recorded_readings(path) if path else homes if homes is not None else Homes()
    source = app.source(
        "readings",
        replay(
            generator=readings,
            load=load if load is not None else constant(2_000),
            schema=READING,
            max_rows_per_batch=max_rows_per_batch,
        ),
        parallelism=tasks,
        cost_s=2e-5,
        record_bytes=56,
        keep_by=("house", "household", "plug", "time_s"),
    )
    loads = source.map(
        "loads", loads_only, schema=READING, parallelism=tasks, cost_s=2e-5, selectivity=0.5, record_bytes=56
    )
    plugs = loads.keyed(
        "plugs",
        PlugPrediction(slice_s=slice_s),
        key=("house", "household", "plug"),
        state="slice long, total long, readings long, history map<int, array<double>>",
        schema=PREDICTION,
        parallelism=tasks,
        cost_s=2e-4,
        selectivity=1 / 45,
        record_bytes=40,
    )
    houses = loads.keyed(
        "houses",
        HousePrediction(slice_s=slice_s),
        key="house",
        state=(
            "slice long, "
            "plugs map<struct<household: long, plug: long>, struct<total: long, readings: long>>, "
            "history map<int, array<double>>"
        ),
        schema=PREDICTION,
        parallelism=tasks,
        cost_s=2e-4,
        selectivity=1 / 1440,
        record_bytes=40,
    )
    app.sink(
        "predictions", sink if sink is not None else discard(), inputs=[plugs, houses], parallelism=tasks
    )
    return app.build()
