"""Traffic for Linear Road: cars on any number of expressways, with a rush, accidents, questions and rain."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from penstock.arrays import Ints
from penstock_papers.common.chance import chance, choice
from penstock_papers.common.recordings import Recording
from penstock_papers.dynamic_dataflows.linear_road.records import (
    BALANCE,
    EXIT_LANE,
    EXPENDITURE,
    INPUT_NAMES,
    NONE,
    REPORT,
    SEGMENT_FEET,
    SEGMENTS,
    TRAVEL,
    WEATHER,
)

PERIOD_S = 30
"""Between two reports of a car."""
STEPS = 24
"""Reports of a trip; the last is from the exit lane."""
FEET_PER_MPH = 44
"""A car gets so far between two reports for each mph."""
STOP_STEPS = 10
"""Reports from the place of an accident."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """A generator of the benchmark's records, in order of time; each depends on its number alone.

    Every expressway has `cars` cars at any time. Each reports every 30 s, leaves after twelve minutes, and another
    takes its place. Half of them drive slowly on a stretch of four miles, the rush; of every hundred pairs of cars
    `accident_percent` crash and block the road for five minutes. Each second ends with questions and a report of rain.
    """

    expressways: int = 1
    cars: int = 1_200
    """Per expressway; a multiple of 60, so that seconds are equally full and pairs do not split."""
    questions: int = 1
    """In every second."""
    accident_percent: float = 2.0

    def __post_init__(self) -> None:
        """Refuse what cannot be laid out."""
        if self.expressways < 1 or self.cars < 60 or self.cars % 60 or self.questions < 0:
            raise ValueError("traffic needs an expressway, and cars in multiples of 60")

    @property
    def per_second(self) -> int:
        """Records of one second."""
        return self.expressways * self.cars // PERIOD_S + self.questions + 1

    def __call__(self, start: int, stop: int) -> pa.RecordBatch:
        """Records number `start` to `stop`."""
        ids = np.arange(start, stop, dtype=np.int64)
        time_s, within = np.divmod(ids, self.per_second)
        reporting = self.expressways * self.cars // PERIOD_S
        slot = within * PERIOD_S + time_s % PERIOD_S
        asking = choice(ids, 1, self.expressways * self.cars)
        is_report, is_rain = within < reporting, within == self.per_second - 1
        columns = {name: np.full(len(ids), NONE) for name in INPUT_NAMES}
        for name, values in self._reports(slot, time_s).items():
            columns[name] = np.where(is_report, values, columns[name])
        asked = ~is_report & ~is_rain
        for name, values in self._questions(ids, asking, time_s).items():
            columns[name] = np.where(asked, values, columns[name])
        rain = {
            "kind": np.full(len(ids), WEATHER),
            "xway": choice(ids, 2, self.expressways),
            "segment": choice(ids, 3, SEGMENTS),
            "speed": np.where(chance(time_s // 1200, 4) < 0.4, choice(ids, 5, 101), 0),
        }
        for name, values in rain.items():
            columns[name] = np.where(is_rain, values, columns[name])
        return pa.RecordBatch.from_pydict({**columns, "time_s": time_s})

    def _trip(self, slot: Ints, time_s: Ints) -> tuple[Ints, Ints, Ints]:
        """The vehicle in a slot, what is the same for a pair that crashes, and how many reports it has sent."""
        pair = slot // 2
        trip, step = np.divmod(time_s // PERIOD_S + choice(pair, 6, STEPS), STEPS)
        slots = self.expressways * self.cars
        together = trip * slots + pair
        crashes = chance(together, 7) < self.accident_percent / 100
        vehicle = trip * slots + slot
        return vehicle, np.where(crashes, -together - 1, vehicle), step

    def _reports(self, slot: Ints, time_s: Ints) -> dict[str, Ints]:
        vehicle, seed, step = self._trip(slot, time_s)
        xway, crash = slot // self.cars, seed < 0
        rush = chance(seed, 8) < 0.5
        direction = choice(seed, 9, 2)
        mph = np.where(rush, 8 + choice(seed, 10, 20), 45 + choice(seed, 10, 30))
        stretch = 30 + choice(xway * 2 + direction, 11, 40)
        # Miles from the end at which its direction begins; 24 reports at 75 mph are 15 miles.
        mile = np.where(rush, stretch + choice(seed, 12, 4), choice(seed, 12, SEGMENTS - 16))
        stop_at = 4 + choice(seed, 14, 4)
        stood = np.where(crash, np.clip(step - stop_at, 0, STOP_STEPS), 0)
        stands = crash & (step >= stop_at) & (step < stop_at + STOP_STEPS)
        travelled = mile * SEGMENT_FEET + choice(seed, 13, SEGMENT_FEET) + mph * FEET_PER_MPH * (step - stood)
        position = np.where(direction == 0, travelled, SEGMENTS * SEGMENT_FEET - 1 - travelled)
        lane = np.where(crash, 2, 1 + choice(vehicle * STEPS + step, 15, 3))
        lane = np.where(step == 0, 0, np.where(step == STEPS - 1, EXIT_LANE, lane))
        wobble = choice(vehicle * STEPS + step, 16, 7) - 3
        return {
            "kind": np.full(len(slot), REPORT),
            "vehicle": vehicle,
            "speed": np.where(stands, 0, mph + wobble),
            "xway": xway,
            "lane": lane,
            "direction": direction,
            "segment": position // SEGMENT_FEET,
            "position": position,
        }

    def _questions(self, ids: Ints, slot: Ints, time_s: Ints) -> dict[str, Ints]:
        draw = chance(ids, 17)
        kind = np.where(draw < 0.5, BALANCE, np.where(draw < 0.6, EXPENDITURE, TRAVEL))
        travel = kind == TRAVEL
        return {
            "kind": kind,
            "vehicle": self._trip(slot, time_s)[0],
            "xway": np.where(kind == BALANCE, NONE, choice(ids, 18, self.expressways)),
            "query": ids,
            "begin": np.where(travel, choice(ids, 19, SEGMENTS), NONE),
            "end": np.where(travel, choice(ids, 20, SEGMENTS), NONE),
            "weekday": np.where(travel, 1 + choice(ids, 21, 7), NONE),
            "minute": np.where(travel, 1 + choice(ids, 22, 1440), NONE),
            "day": np.where(kind == EXPENDITURE, 1 + choice(ids, 23, 69), NONE),
        }


def recorded_traffic(path: str) -> Recording:
    """A file of the benchmark as a generator, in order of time."""
    return Recording(
        path=path,
        columns=tuple((name, "int64") for name in INPUT_NAMES),
        keep=INPUT_NAMES,
        times=("time_s",),
    )
