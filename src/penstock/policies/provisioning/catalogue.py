"""Machine classes that come with Penstock. Prices change: give your own with `--classes FILE`.

Each set has its own reference core: in `m1` a core of m1.small, in `current` and `spot` one hardware thread of a
current x86 server. Declare costs on the same reference.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from penstock.telemetry import MachineClass

GIB = float(1 << 30)
REACTION_S = 120.0
"""From the notice of an interruption until its replacement is asked for."""


def by_hour(name: str, cores: int, speed: float, price: float, memory_gib: float) -> MachineClass:
    """A class billed by started hours."""
    return MachineClass(
        name=name,
        cores=cores,
        speed=speed,
        memory_bytes=memory_gib * GIB,
        price_per_hour=price,
        billing_s=3600.0,
        startup_s=100.0,
    )


def by_second(name: str, cores: int, speed: float, price: float, memory_gib: float) -> MachineClass:
    """A class billed by the second, a minute at least."""
    return MachineClass(
        name=name,
        cores=cores,
        speed=speed,
        memory_bytes=memory_gib * GIB,
        bandwidth_bytes_per_s=1.25e9,
        price_per_hour=price,
        billing_s=1.0,
        minimum_s=60.0,
        startup_s=45.0,
    )


def spot(machine: MachineClass, *, discount: float, interruptions_per_hour: float) -> MachineClass:
    """The class as spot capacity: cheaper, and slower by the time that interruptions take away."""
    if not 0 <= discount < 1 or interruptions_per_hour < 0:
        raise ValueError("a spot discount lies in 0..1 and interruptions cannot be negative")
    away = min(0.9, interruptions_per_hour * (machine.startup_s + REACTION_S) / 3600.0)
    return replace(
        machine,
        name=f"{machine.name}-spot",
        price_per_hour=machine.price_per_hour * (1 - discount),
        speed=machine.speed * (1 - away),
    )


M1 = (
    by_hour("m1.small", 1, 1.0, 0.06, 1.7),
    by_hour("m1.medium", 1, 2.0, 0.12, 3.75),
    by_hour("m1.large", 2, 2.0, 0.24, 7.5),
    by_hour("m1.xlarge", 4, 2.0, 0.48, 15.0),
)
"""The paper's (spec/dynamic-dataflows.md)."""

CURRENT = (
    by_second("c7g.medium", 1, 0.95, 0.0363, 2),
    by_second("c7g.large", 2, 0.95, 0.0725, 4),
    by_second("c7g.xlarge", 4, 0.95, 0.1450, 8),
    by_second("c7g.4xlarge", 16, 0.95, 0.5800, 32),
    by_second("c7i.large", 2, 1.0, 0.08925, 4),
    by_second("c7i.xlarge", 4, 1.0, 0.1785, 8),
    by_second("c7i.4xlarge", 16, 1.0, 0.7140, 32),
    by_second("m7i.large", 2, 1.0, 0.1008, 8),
    by_second("m7i.xlarge", 4, 1.0, 0.2016, 16),
    by_second("m7i.4xlarge", 16, 1.0, 0.8064, 64),
    by_second("e2-standard-4", 4, 0.75, 0.1340, 16),
    by_second("n2-standard-8", 8, 0.95, 0.3885, 32),
    by_second("D4s-v5", 4, 0.95, 0.1920, 16),
)

SPOT = tuple(spot(c, discount=0.6, interruptions_per_hour=0.05) for c in CURRENT)

CATALOGUE: Mapping[str, tuple[MachineClass, ...]] = {"current": CURRENT, "m1": M1, "spot": SPOT}

_SEEN = (
    "US dollars an hour, Linux, on demand: AWS us-east-1, Google us-central1, Azure East US. Compared in November 2026 "
    "with price tables in public repositories, which agree to a tenth of a percent, not with the providers' own lists; "
    "Google's were tables of 2023 to 2025. Speeds are rough relative figures for one hardware thread, not measured"
)
PROVENANCE: Mapping[str, str] = {
    "current": _SEEN,
    "m1": "the dynamic-dataflows paper: Amazon's m1 family of about 2013",
    "spot": f"{_SEEN}. Spot: 60 % less and an interruption in 20 hours, which is assumed",
}
"""Where the figures of each set are from."""
