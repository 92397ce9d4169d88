"""What was put into Neptune's trials, and what of the paper they do not show."""

from __future__ import annotations

from penstock_papers.common.figures import Input, NotShown
from penstock_papers.neptune import patients
from penstock_papers.neptune.patients import Size

PERIOD_S = 600.0
FOREIGN_SHARE = 0.75
"""Of CPU and bandwidth, on a third of the nodes."""
PAPER_MOVE_S = 0.05468


def inputs(size: Size) -> tuple[Input, ...]:
    """Calibrated, tuned or chosen; `size` is that of the trials with several seeds."""
    return (
        Input(
            name="size of the trials with several seeds",
            value=f"{size.nodes} nodes of {size.per_node} computations",
            source="the paper's nodes; fewer computations on each, so that five seeds take minutes",
        ),
        Input(
            name="use of the bandwidth when all is even, and CPU load then",
            value=f"{patients.EVEN_USE:g} and {patients.EVEN_LOAD:g}",
            source="calibrated to the paper's table 3; what even placement wins over nothing follows from it",
        ),
        Input(
            name="rates of computations of a kind",
            value=f"relative s.d. {patients.RATE_SD:g}",
            source="ours: in the paper all are equal, which leaves nothing to choose between",
        ),
        Input(
            name="fixed part of a move",
            value=f"{patients.MOVE_S:g} s",
            source=f"the paper's mean of {PAPER_MOVE_S:g} s, less the transfer",
        ),
        Input(
            name="foreign load",
            value=f"{FOREIGN_SHARE:g} of CPU and bandwidth, which yields to nobody",
            source="ours; its traffic shows in the counters of the interface only",
        ),
        Input(
            name="length of a season",
            value=f"{PERIOD_S:g} s",
            source="told to ours and to the paper's method in the trials with waves; the last value needs none",
        ),
        Input(
            name="options of our policy",
            value="as it comes, but fair_share 0.02",
            source="it was developed beside these trials with equal rates of all computations and seed 0; on which "
            "inputs each default was chosen was not written down",
        ),
    )


NOT_SHOWN = (
    NotShown(
        what="the cluster", why="fifteen nodes are simulated; moves on real Spark are in interference.md"
    ),
    NotShown(
        what="figure 1 (latency by computations on one machine) and figure 4 (a forecast beside what came)",
        why="no trial here is about a single machine or a single computation; the error of forecasts over the rings' "
        "horizon beside the last value's is in interference.md",
    ),
    NotShown(what="memory", why="no trial here is short of it"),
    NotShown(
        what="25 minutes until even",
        why="trials with fixed rates end after 15; the figure at the end is compared, not when it was reached",
    ),
)
