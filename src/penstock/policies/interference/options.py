"""Options of policies that move computations."""

from __future__ import annotations

from dataclasses import dataclass, field

from penstock.errors import check_ranges
from penstock.policies.interference.rings import RingShape


@dataclass(frozen=True, slots=True, kw_only=True)
class MigrationOptions:
    """What every policy that moves computations lets one set."""

    rings: RingShape = field(default_factory=RingShape)
    """Windows of the prediction rings (number and seconds of each ring)."""
    amplifier: int = 3
    """n: how much more a full node costs than a quiet one (1 or more; the paper's best is 3)."""
    cpu_share: float = 0.666
    """cpuFrac: share of the cores that may be used (0..1]; the rest is for bursts."""
    network_share: float = 0.7
    """bwFrac: share of the bandwidth that may be used (0..1]."""
    consecutive: int = 2
    """Evaluations in a row in which a computation must stand out before it is moved (1 or more)."""
    cooldown_s: float = 10.0
    """How long a node takes part in no further move after one (seconds, 0 or more)."""
    refusal_s: float = 600.0
    """How long a computation that found no better node is not looked at again (seconds, 0 or more)."""
    refusals: int = 3
    """Evaluations in a row that bring a hot node nothing before it is said aloud (1 or more)."""
    threshold: float = 0.05
    """Least relative gain of a move (0..1) at ordinary imbalance; a step function of the imbalance sets the rest."""
    forecasts: bool = True
    """Whether arrivals are forecast; otherwise the rates of the last cycles are taken to stay."""
    season_s: float = 0.0
    """Length of a season of the arrivals (seconds, 0 = none)."""
    mean_steps: int = 2
    """Cycles whose mean arrival rate is what forecasts are made from (1 or more)."""
    machines: str = ""
    """Machine classes that computations may be on, by commas (empty: any)."""

    def __post_init__(self) -> None:
        check_ranges(
            self,
            {
                "amplifier is at least 1": self.amplifier >= 1,
                "cpu_share lies in 0..1": 0 < self.cpu_share <= 1,
                "network_share lies in 0..1": 0 < self.network_share <= 1,
                "consecutive is at least 1": self.consecutive >= 1,
                "cooldown_s is 0 or more": 0 <= self.cooldown_s < float("inf"),
                "refusal_s is 0 or more": 0 <= self.refusal_s < float("inf"),
                "refusals is at least 1": self.refusals >= 1,
                "threshold lies in 0..1": 0 <= self.threshold < 1,
                "season_s is 0 or more": 0 <= self.season_s < float("inf"),
                "mean_steps is at least 1": self.mean_steps >= 1,
            },
        )

    @property
    def classes(self) -> frozenset[str]:
        """Names of the machine classes in `machines`."""
        return frozenset(name.strip() for name in self.machines.split(",") if name.strip())


@dataclass(frozen=True, slots=True, kw_only=True)
class InterferenceOptions(MigrationOptions):
    """What our policy lets one set besides."""

    cooldown_s: float = 20.0
    """How long a node takes part in no further moves after some (seconds, 0 or more)."""
    refusal_s: float = 60.0
    """How long a computation that did not move when told is left alone (seconds, 0 or more)."""
    memory_share: float = 0.8
    """Share of a node's memory that state may fill (0..1]."""
    band: float = 0.08
    """How far above the mean of all nodes a node's load must be to count as hot (share, 0 or more)."""
    least_use: float = 0.05
    """Use of its fullest resource below which a node is never hot (0..1)."""
    least_mean: float = 0.2
    """Mean use of a resource (of the share that may be used) below which its imbalance counts for less (0..1]."""
    fair_share: float = 0.5
    """Share of the cores that the operating system leaves us however busy others are (0..1]."""
    move_s: float = 0.06
    """Fixed part of a move's pause (seconds, 0 or more); the transfer of the state comes on top."""
    restore_mb_per_s: float = 20.0
    """State that an executor restores from a checkpoint in a second (MB), where batches wait for it."""
    least_relief: float = 0.2
    """Share of the slowest node's time that moves must take away, where a batch waits for its slowest node (0..1).
    With little, the noise of batches alone moves state."""
    most_moves: int = 1000
    """Moves in one cycle at most (1 or more)."""
    quiet_share: float = 0.5
    """A computation whose far future has less than this share of its present load is not moved (0..1)."""

    def __post_init__(self) -> None:
        MigrationOptions.__post_init__(self)
        check_ranges(
            self,
            {
                "memory_share lies in 0..1": 0 < self.memory_share <= 1,
                "band is 0 or more": self.band >= 0,
                "least_use lies in 0..1": 0 <= self.least_use <= 1,
                "least_mean lies in 0..1": 0 < self.least_mean <= 1,
                "fair_share lies in 0..1": 0 < self.fair_share <= 1,
                "move_s is 0 or more": 0 <= self.move_s < float("inf"),
                "restore_mb_per_s is more than 0": 0 < self.restore_mb_per_s < float("inf"),
                "least_relief lies in 0..1": 0 <= self.least_relief < 1,
                "most_moves is at least 1": self.most_moves >= 1,
                "quiet_share lies in 0..1": 0 <= self.quiet_share <= 1,
            },
        )
