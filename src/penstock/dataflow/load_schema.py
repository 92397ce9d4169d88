"""The ways a dataflow file can write a load, each with the maker of `load` that it stands for."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Annotated, Any, ClassVar, Literal, cast

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    ValidationInfo,
)

from penstock.dataflow import load as loads
from penstock.dataflow.load import Load


class Door(BaseModel):
    """A mapping of the file: no unknown keys, no guessing of types."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, populate_by_name=False)

    @classmethod
    def known_keys(cls) -> list[str]:
        """The keys a file may have here."""
        return [field.alias or name for name, field in cls.model_fields.items()]


class LoadDoor(Door):
    """A load by the arguments of its maker."""

    maker: ClassVar[Callable[..., Load]]

    def to_domain(self, base: str) -> Load:
        """The load itself; files are looked for from `base`."""
        return type(self).maker(**{name: value for name, value in self if name != "kind"})


class PointsDoor(LoadDoor):
    """`rates[i]` records per second from `times[i]` seconds on; starts again after `period` seconds."""

    times: list[float]
    rates: list[float]
    period: float | None = None

    def to_domain(self, base: str) -> Load:
        """The load itself."""
        return Load(tuple(self.times), tuple(self.rates), self.period)


class ConstantDoor(LoadDoor):
    """The same rate for ever; a bare number means it too."""

    maker = loads.constant

    kind: Literal["constant"]
    rate_rps: float


class StaircaseDoor(LoadDoor):
    """Pairs of seconds and records per second, one after the other."""

    maker = loads.staircase

    kind: Literal["staircase"]
    steps: list[Annotated[list[float], Field(min_length=2, max_length=2)]]
    repeat: bool = False


class SineDoor(LoadDoor):
    """A sine in small steps."""

    maker = loads.sine

    kind: Literal["sine"]
    mean_rps: float
    amplitude_rps: float
    period_s: float
    step_s: float | None = None


class BurstsDoor(LoadDoor):
    """Exponential spells of quiet and of burst."""

    maker = loads.bursts

    kind: Literal["bursts"]
    base_rps: float
    burst_rps: float
    mean_quiet_s: float
    mean_burst_s: float
    duration_s: float
    seed: int = Field(default=0, ge=0)


class RandomWalkDoor(LoadDoor):
    """A walk within `mean_rps · (1 ± spread)`."""

    maker = loads.random_walk

    kind: Literal["random-walk"]
    mean_rps: float
    duration_s: float
    spread: float = 0.5
    step_s: float = 120.0
    seed: int = Field(default=0, ge=0)


class TraceDoor(LoadDoor):
    """A CSV file with the header `timestamp,value`; its path is relative to the dataflow file."""

    kind: Literal["trace"]
    path: str
    time_scale: float = 1.0
    rate_scale: float = 1.0

    def to_domain(self, base: str) -> Load:
        """The load in the file."""
        return loads.read_trace(os.path.join(base, self.path)).scaled(
            time=self.time_scale, rate=self.rate_scale
        )


LOAD_DOORS: dict[str, type[LoadDoor]] = {
    "points": PointsDoor,
    "constant": ConstantDoor,
    "staircase": StaircaseDoor,
    "sine": SineDoor,
    "bursts": BurstsDoor,
    "random-walk": RandomWalkDoor,
    "trace": TraceDoor,
}
LOAD_KINDS = tuple(kind for kind in LOAD_DOORS if kind != "points")


def _constant(given: Any) -> Any:
    is_number = isinstance(given, int | float) and not isinstance(given, bool)
    return {"kind": "constant", "rate_rps": given} if is_number else given


def _door(given: Any) -> Any:
    return given.get("kind", "points") if isinstance(given, dict) else None


def _to_domain(door: Any, info: ValidationInfo) -> Load:
    return cast(LoadDoor, door).to_domain((info.context or {}).get("base", ""))


_EachDoor = (
    Annotated[PointsDoor, Tag("points")]
    | Annotated[ConstantDoor, Tag("constant")]
    | Annotated[StaircaseDoor, Tag("staircase")]
    | Annotated[SineDoor, Tag("sine")]
    | Annotated[BurstsDoor, Tag("bursts")]
    | Annotated[RandomWalkDoor, Tag("random-walk")]
    | Annotated[TraceDoor, Tag("trace")]
)
AnyLoad = Annotated[
    Annotated[_EachDoor, Discriminator(_door)], BeforeValidator(_constant), AfterValidator(_to_domain)
]
"""A load in any of these ways; validated, it is the `Load`."""
