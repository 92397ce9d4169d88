"""Options of the provisioning policy."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ProvisioningOptions:
    """When to run cheaper or better alternates, and whether to rent machines as well."""

    throughput: float = 1.0
    """Share (0..1] of what the sources produce that must be carried; below 1 the backlog grows by the rest."""
    utilisation: float = 0.9
    """Highest busy share (0..1] of the cores that is planned for."""
    band: float = 0.15
    """Share (0..1) of the capacity that must stay free for a dearer alternate to come back."""
    return_after_s: float = 20.0
    """Seconds for which a dearer alternate must have fitted, backlog and all, before it comes back."""
    most_patience_s: float = 600.0
    """Each return that did not last doubles the wait, up to this many seconds."""
    drain_s: float = 20.0
    """Seconds within which a backlog should be gone after a switch to a cheaper alternate."""
    lag_s: float = 5.0
    """A backlog of fewer seconds of production than this (or than two batches) is ordinary."""
    foresight_s: float = 30.0
    """How far ahead the load must fit before a dearer alternate comes back."""
    caution: float = 1.0
    """Standard deviations of the forecast to be ready for, 0 or more."""
    rent: bool = False
    """Whether to acquire and release machines as well; needs prices of machine classes."""
    break_even_per_hour: float = 0.0
    """Cost per hour that full value is worth (0: a quarter above what full value costs now); only with `rent`."""
