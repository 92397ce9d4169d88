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
    spare_nodes: int = 0
    """Nodes (0 or more) kept warm beyond those needed, within `max_nodes`: a rise that nobody foresaw meets them at
    once, not after a cold start."""
    margin: float = 0.8
    """Share (0..1] of the bound that the model may use; the rest is for what it does not know. After cold nodes broke
    a bound, one goes only where the others use 0.6 of that."""
    catch_up_s: float = 15.0
    """Seconds within which a backlog should be gone."""
    shrink_after_s: float = 20.0
    """Fewer nodes must have sufficed for so long before one goes; six times as long after cold nodes broke a bound."""
    settle_s: float = 8.0
    """Seconds after a change in which only growth is decided: a new node is cold at first."""
    utilisation: float = 0.85
    """Highest busy share (0..1) of the cores that is planned for."""
    pacing: bool = False
    """Whether trigger intervals and read limits of queries are set too, where their owners left them open."""
    pace_share: float = 0.6
    """Share (0..1] of the bound that records may be late with a longer interval; less than `margin`, so that no node
    is bought for it."""
    surge: float = 3.0
    """Largest sudden rise of the load, as a factor of 1 or more, that a longer interval leaves room for."""
    startup_s: float = 15.0
    """Seconds from asking for a node until it works, before this has been measured."""
    caution: float = 1.0
    """Standard deviations of the arrival forecast to be ready for, 0 or more."""
    most_caution: float = 0.3
    """Largest share (0..) that the forecast's uncertainty adds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ElasticityOptions(NodeOptions):
    """The options for nodes, and how many tasks each operator gets where the runtime can change that.

    `margin`, the bounds on nodes and the caution are shared; what follows is about tasks alone.
    """

    wait_share: float = 0.7
    """Share (0..1) of what tasks leave of `margin` times the bound that is planned for waiting in queues."""
    task_utilisation: float = 0.9
    """Highest busy share (0..1) of a task that is planned for."""
    task_startup_s: float = 2.0
    """Seconds from asking for tasks until they work, before this has been measured."""
    drain_s: float = 2.5
    """Seconds within which a backlog that breaks a bound should be gone, once new tasks work."""
    task_shrink_after_s: float = 10.0
    """Fewer tasks must have sufficed for this long, and be foreseen to, before any is given back."""
    max_tasks: int | None = None
    """Most tasks of all elastic operators; None: what the budget allows, one task a core."""
    batching: bool = True
    """Whether output batches may wait for as long as the bounds allow."""
