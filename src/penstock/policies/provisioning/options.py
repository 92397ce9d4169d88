"""Options of the provisioning policy."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ProvisioningOptions:
    """When to run cheaper or better alternates, and whether to choose the number of nodes with them.

    The budget, the throughput to keep and latency bounds are goals of the dataflow, not options.
    """

    utilisation: float = 0.9
    """Highest busy share (0..1] of the cores that is planned for; a latency bound may ask for less."""
    band: float = 0.15
    """Share (0..1) of the capacity that must stay free for a dearer alternate to come back."""
    return_after_s: float = 20.0
    """Seconds for which a dearer alternate must have fitted, or a node been spare, before that is acted on."""
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
    """Whether to acquire and release nodes as well; needs a machine class with a price."""
    catch_up_s: float = 300.0
    """Nodes are acquired for a backlog as if it had this many seconds to go; more than half the load never."""
    break_even_per_hour: float = 0.0
    """Cost per hour that full value is worth (0: any cost within the budget); only with `rent`."""
