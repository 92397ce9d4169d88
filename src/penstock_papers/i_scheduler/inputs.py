"""What was put into I-Scheduler's trials, and what of the paper they do not show."""

from __future__ import annotations

from penstock_papers.common.figures import Input, NotShown
from penstock_papers.i_scheduler.schedules import COST_SD, NETWORK_S, UTILISATION

INPUTS = (
    Input(
        name="tuples under way",
        value="by application",
        source="calibrated: R-Storm on equal nodes then has the paper's throughput, which is therefore no finding",
    ),
    Input(
        name="time of a tuple between nodes",
        value=f"{1e3 * NETWORK_S:g} ms",
        source="ours: the transport's batches, virtual machines, a network of 1 Gbit/s",
    ),
    Input(
        name="slots of a node",
        value="see schedules.py",
        source="such that the paper's schedulers fill the nodes that it says they used",
    ),
    Input(
        name="share of the cores filled, by CPU",
        value=UTILISATION,
        source="the shipped default, for everybody. It was chosen after five values had been tried on these two "
        "applications with their own costs, so their shape is not new to it; the drawn costs are",
    ),
    Input(
        name="costs and selectivities of drawn applications",
        value=f"lognormal around the application's, s.d. {COST_SD:g}",
        source="ours: five draws that nothing was tuned on",
    ),
    Input(
        name="φ", value="calibrated on this machine", source="I-Scheduler's θ is the time that everybody has"
    ),
)
NOT_SHOWN = (
    NotShown(
        what="the cluster",
        why="Storm on eight machines is simulated; moves on Spark are in placement.md",
    ),
    NotShown(
        what="costs and selectivities measured from our own workloads",
        why="the applications' own are estimates; five draws around them stand for what is not known",
    ),
    NotShown(
        what="figures 10 and 11, throughput of the micro-benchmarks",
        why="the micro-benchmarks are solved here, not run: their costs by task are not printed",
    ),
    NotShown(
        what="figures 14, 15, 18 and 19, latency of the applications over time",
        why="latency is compared as a mean of the steady state, at the rate that round robin lets through",
    ),
    NotShown(
        what="the second level, tasks to workers of a node",
        why="`worker_groups` is tested, but no trial here has several workers to a node; executors of one host "
        "count as one node for traffic",
    ),
    NotShown(
        what="planted groups and 200 random clusters",
        why="they take half an hour of CPU: `penstock bench placement`, in placement.md",
    ),
)
