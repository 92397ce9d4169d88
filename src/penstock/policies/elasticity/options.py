"""Options of the elasticity policy."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeOptions:
    """How many nodes (executors) hold a latency bound where the engine works in micro-batches."""

    min_nodes: int = 1
    """Fewest nodes, at least 1."""
    max_nodes: int | None = None
    """Most nodes; None: what the snapshot says can be had."""
    margin: float = 0.8
    """Share (0..1] of the bound that the model may use; the rest is for what it does not know."""
    catch_up_s: float = 15.0
    """Seconds within which a backlog should be gone."""
    shrink_after_s: float = 20.0
    """Fewer nodes must have sufficed for this long before one is given back."""
    settle_s: float = 8.0
    """Seconds after a change in which only growth is decided: a new node is cold at first."""
    utilisation: float = 0.85
    """Highest busy share (0..1) of the cores that is planned for."""
