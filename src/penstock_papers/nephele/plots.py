"""The paper's figures, drawn from our runs: the two time series and the surface of solutions."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import matplotlib
import numpy as np

matplotlib.use("Agg")
from matplotlib import pyplot as plt

from penstock.policies.elasticity import Waits
from penstock_papers.common.trials import Course
from penstock_papers.nephele.tweets import ELASTIC, elastic_rows

if TYPE_CHECKING:
    from penstock_papers.nephele.reproduction import Findings

SURFACE = (Waits(np.array([0.5, 0.5, 0.5]), np.array([4.0, 6.0, 8.0])), 0.15)
"""Three operators and a limit on the wait, for the surface: any such shows the same shape."""


def draw(findings: Findings, folder: Path) -> tuple[Path, ...]:
    """Write all plots into a folder, which is made if it is not there."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / "primetester.png", folder / "surface.png"]
    _primetester(findings, paths[0])
    surface(paths[1])
    for name, (course, load) in findings.tweets.items():
        path = folder / f"sentiment-{name.replace(' ', '-')}.png"
        _sentiment(course, elastic_rows(load), name, path)
        paths.append(path)
    return tuple(paths)


def _primetester(findings: Findings, path: Path) -> None:
    figure, axes = plt.subplots(3, 1, sharex=True, figsize=(10, 9))
    ways = [
        ("Penstock", findings.ours, "tab:blue"),
        ("the paper's method", findings.paper, "tab:orange"),
        ("175 fixed tasks", findings.fixed, "tab:gray"),
    ]
    for name, course, colour in ways:
        axes[0].semilogy(course.time_s, 1e3 * course.latency_s[:, 0], color=colour, label=name)
        axes[0].semilogy(course.time_s, 1e3 * course.p95_s, color=colour, linestyle=":", linewidth=0.8)
        axes[1].plot(course.time_s, course.parallelism[:, 1], color=colour, label=name)
    axes[0].axhline(20, color="tab:red", linewidth=0.8)
    axes[0].set_ylabel("latency, ms (mean; dotted: p95)")
    axes[0].legend()
    axes[1].set_ylabel("prime testers")
    axes[2].plot(findings.ours.time_s, findings.ours.rate_rps, color="black")
    axes[2].set_ylabel("records per second")
    axes[2].set_xlabel("seconds")
    _save(figure, path)


def _sentiment(course: Course, rows: list[int], name: str, path: Path) -> None:
    figure, axes = plt.subplots(3, 1, sharex=True, figsize=(10, 9))
    for number, bound_ms in enumerate((215, 30)):
        (line,) = axes[0].semilogy(
            course.time_s, 1e3 * course.latency_s[:, number], label=f"bound {bound_ms} ms", linewidth=0.8
        )
        axes[0].axhline(bound_ms, color=line.get_color(), linestyle="--", linewidth=0.8)
    axes[0].set_ylabel("mean latency, ms")
    axes[0].legend()
    for row, operator in zip(rows, ELASTIC, strict=True):
        axes[1].plot(course.time_s, course.parallelism[:, row], label=operator, linewidth=0.8)
    axes[1].set_ylabel("tasks")
    axes[1].legend()
    axes[2].plot(course.time_s, course.rate_rps, color="black", linewidth=0.8)
    axes[2].set_ylabel("tweets per second")
    axes[2].set_xlabel("seconds")
    figure.suptitle(f"TwitterSentiment, {name}")
    _save(figure, path)


def surface(path: Path) -> None:
    """For each p1 and p2 the least p3 with which records wait no longer than allowed; lighter: fewer in all."""
    waits, limit_s = SURFACE
    p1, p2 = np.meshgrid(np.arange(5, 31), np.arange(7, 33))
    left = limit_s - waits.a[0] / (p1 - waits.b[0]) - waits.a[1] / (p2 - waits.b[1])
    p3 = np.where(left > 0, np.ceil(waits.a[2] / np.where(left > 0, left, 1.0) + waits.b[2]), np.nan)
    p3 = np.where(p3 <= 60, p3, np.nan)
    total = p1 + p2 + p3
    shade = (total - np.nanmin(total)) / (np.nanmax(total) - np.nanmin(total))
    figure = plt.figure(figsize=(8, 7))
    axes: Any = figure.add_subplot(projection="3d")
    axes.plot_surface(p1, p2, p3, facecolors=plt.get_cmap("viridis_r")(np.nan_to_num(shade)), linewidth=0)
    axes.set_xlabel("$p_1$")
    axes.set_ylabel("$p_2$")
    axes.set_zlabel("least $p_3$")
    axes.set_title("Solutions of W(p1, p2, p3) ≤ Ŵ; lighter: fewer tasks in all")
    _save(figure, path)


def _save(figure: Any, path: Path) -> None:
    figure.savefig(path, dpi=120, bbox_inches="tight")
    plt.close(figure)
