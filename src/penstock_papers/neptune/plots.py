"""Neptune's figures, drawn from our runs: throughput, latency, use of nodes, threshold and moves over time."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import matplotlib
import numpy as np

matplotlib.use("Agg")
from matplotlib import pyplot as plt

from penstock_papers.neptune.patients import WAKE_S, Course

if TYPE_CHECKING:
    from penstock_papers.neptune.reproduction import Findings, Trio

PERIOD_S = 120.0
"""Moves are counted in periods of two minutes, as in the paper."""


def draw(findings: Findings, folder: Path) -> tuple[Path, ...]:
    """Write all plots into a folder, which is made if it is not there."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for name, trio in (
        ("fixed", findings.fixed),
        ("variable", findings.variable),
        ("foreign", findings.foreign),
    ):
        paths += [folder / f"{name}.png", folder / f"{name}-nodes.png"]
        _over_time(trio, name, paths[-2])
        _nodes(trio, name, paths[-1])
    paths.append(folder / "amplifier.png")
    _amplifier(findings, paths[-1])
    return tuple(paths)


def _minutes(course: Course) -> Any:
    return (course.time_s - WAKE_S) / 60


def _over_time(trio: Trio, name: str, path: Path) -> None:
    """Figures 7, 9 and 11 (throughput and latency), 12 and 13 (threshold and moves)."""
    figure, axes = plt.subplots(5, 1, sharex=True, figsize=(10, 14))
    ways = {"ours": trio.ours, "the paper's": trio.papers, "nothing": trio.nothing, "ideal": trio.ideal}
    for label, course in ways.items():
        at = _minutes(course)
        axes[0].plot(at, course.throughput_rps / 1e6, label=label)
        axes[1].plot(at, np.maximum(course.p99_s, 1e-4), label=label)
        axes[2].plot(at, np.maximum(course.latency_sd_s, 1e-4), label=label)
    for label in ("ours", "the paper's"):
        course = ways[label]
        axes[3].plot(_minutes(course), 100 * course.threshold, label=label)
        axes[4].step(*moves_per_period(course), where="post", label=label)
    for axis, text in zip(
        axes,
        ("million messages/s", "p99 of latency, s", "s.d. of latency, s", "threshold, %", "moves in 2 min"),
        strict=True,
    ):
        axis.set_ylabel(text)
    for axis in axes[1:3]:
        axis.set_yscale("log")
    axes[0].legend()
    axes[-1].set_xlabel("minutes since the change")
    figure.suptitle(f"Neptune, {name}")
    _save(figure, path)


def moves_per_period(course: Course) -> tuple[Any, Any]:
    """(minutes, moves): how many there were in each period."""
    edges = np.arange(0.0, course.time_s[-1] + PERIOD_S, PERIOD_S)
    counts, _ = np.histogram(course.time_s, edges, weights=course.moves)
    return (edges[:-1] - WAKE_S) / 60, counts


def _nodes(trio: Trio, name: str, path: Path) -> None:
    """Figure 10: the use of every node."""
    figure, axes = plt.subplots(2, 2, sharex=True, sharey="row", figsize=(12, 7))
    for column, (label, course) in enumerate((("ours", trio.ours), ("the paper's", trio.papers))):
        axes[0][column].plot(_minutes(course), course.cpu, linewidth=0.8)
        axes[1][column].plot(_minutes(course), course.network, linewidth=0.8)
        axes[0][column].set_title(label)
        axes[1][column].set_xlabel("minutes since the change")
    axes[0][0].set_ylabel("CPU load of each node")
    axes[1][0].set_ylabel("bandwidth in use of each node")
    figure.suptitle(f"Neptune, {name}")
    _save(figure, path)


def _amplifier(findings: Findings, path: Path) -> None:
    """Figure 8: throughput and moves for every n."""
    figure, axes = plt.subplots(2, 2, sharex=True, sharey="row", figsize=(12, 7))
    for n, courses in findings.amplifiers.items():
        for column, course in enumerate(courses):
            axes[0][column].plot(_minutes(course), course.throughput_rps / 1e6, label=f"n = {n}")
            axes[1][column].step(*moves_per_period(course), where="post", label=f"n = {n}")
    for column, label in enumerate(("ours", "the paper's")):
        axes[0][column].set_title(label)
        axes[1][column].set_yscale("symlog")
        axes[1][column].set_xlabel("minutes since the change")
    axes[0][0].set_ylabel("million messages/s")
    axes[1][0].set_ylabel("moves in 2 min")
    axes[0][0].legend()
    _save(figure, path)


def _save(figure: Any, path: Path) -> None:
    figure.savefig(path, dpi=120, bbox_inches="tight")
    plt.close(figure)
