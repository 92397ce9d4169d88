"""The paper's figures 6 and 7, drawn from our runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import matplotlib
import numpy as np

matplotlib.use("Agg")
from matplotlib import pyplot as plt

if TYPE_CHECKING:
    from penstock_papers.dynamic_dataflows.reproduction import Findings

COLOURS = {"best": "tab:blue", "ga": "tab:green", "ce": "tab:orange", "sh": "tab:red", "br": "black"}


def draw(findings: Findings, folder: Path) -> tuple[Path, ...]:
    """Write all plots into a folder, which is made if it is not there."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = tuple(folder / name for name in ("adaptation.png", "deciding.png", "bill.png", "course.png"))
    _adaptation(findings, paths[0])
    _deciding(findings, paths[1])
    _bill(findings, paths[2])
    _course(findings, paths[3])
    return paths


def _adaptation(findings: Findings, path: Path) -> None:
    figure, axes = plt.subplots(1, 2, figsize=(11, 4.5))
    for name in ("best", "ga", "ce", "sh"):
        rates = sorted(rate for decider, rate in findings.adaptive if decider == name)
        courses = [findings.adaptive[name, rate] for rate in rates]
        axes[0].semilogx(rates, [c.throughput.mean() for c in courses], "o-", color=COLOURS[name], label=name)
        axes[1].semilogx(rates, [c.profit for c in courses], "o-", color=COLOURS[name], label=name)
    axes[0].axhline(0.8, color="gray", linewidth=0.8)
    axes[0].set_ylabel("Ω, mean over the period")
    axes[1].axhline(0.0, color="gray", linewidth=0.8)
    axes[1].set_ylabel("profit Θ")
    for axis in axes:
        axis.set_xlabel("records per second, mean")
        axis.legend()
    _save(figure, path)


def _deciding(findings: Findings, path: Path) -> None:
    figure, axes = plt.subplots(1, 2, figsize=(11, 4.5))
    for axis, table, label in (
        (axes[0], findings.decide_s, "CPU seconds to decide"),
        (axes[1], findings.cores, "cores"),
    ):
        for name in ("best", "ga", "ce", "sh"):
            rates = sorted(rate for decider, rate in table if decider == name)
            axis.loglog(rates, [table[name, r] for r in rates], "o-", color=COLOURS[name], label=name)
        axis.set_xlabel("records per second")
        axis.set_ylabel(label)
        axis.legend()
    _save(figure, path)


def _bill(findings: Findings, path: Path) -> None:
    figure, axis = plt.subplots(figsize=(7, 4.5))
    rates = sorted(findings.bills)
    places = np.arange(len(rates))
    axis.bar(places - 0.2, [findings.bills[r][1] for r in rates], 0.4, label="best alternates only")
    axis.bar(places + 0.2, [findings.bills[r][0] for r in rates], 0.4, label="alternates chosen")
    axis.set_xticks(places, [f"{r:g}" for r in rates])
    axis.set_yscale("log")
    axis.set_xlabel("records per second, mean")
    axis.set_ylabel("bill of the period")
    axis.legend()
    _save(figure, path)


def _course(findings: Findings, path: Path) -> None:
    rate = max(rate for name, rate in findings.adaptive if name == "ce")
    figure, axes = plt.subplots(3, 1, sharex=True, figsize=(10, 9))
    for name in ("best", "ce", "sh"):
        course = findings.adaptive[name, rate]
        hours = np.arange(len(course.throughput)) / 30
        axes[0].plot(hours, course.throughput, color=COLOURS[name], label=name, linewidth=0.8)
        axes[1].plot(hours, course.machines, color=COLOURS[name], linewidth=0.8)
    axes[2].plot(hours, course.rate_rps, color="black")
    axes[0].axhline(0.75, color="gray", linewidth=0.8)
    axes[0].legend()
    for axis, label in zip(axes, ("Ω", "machines", "records per second"), strict=True):
        axis.set_ylabel(label)
    axes[2].set_xlabel("hours")
    _save(figure, path)


def _save(figure: Any, path: Path) -> None:
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    plt.close(figure)
