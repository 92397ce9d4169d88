"""The paper's figures 3, 4, 5 and 8, drawn from our runs."""

from __future__ import annotations

from pathlib import Path

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot as plt

from penstock_papers.quality_of_data.sharing import Story


def draw(stories: dict[str, Story], folder: Path) -> tuple[Path, ...]:
    """Write a plot for each scenario into a folder, which is made if it is not there."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for name, story in stories.items():
        figure, axes = plt.subplots(3, 1, sharex=True, figsize=(9, 8))
        for sink in story.wanted:
            (line,) = axes[0].plot(story.time_s, story.wanted[sink], label=sink)
            axes[0].plot(story.time_s, story.counted[sink], color=line.get_color(), linestyle=":")
        for time_s, _ in story.moves:
            axes[0].axvline(time_s, color="tab:gray", linewidth=0.8)
        axes[0].set_ylabel("accuracy (dotted: counted)")
        axes[0].legend()
        axes[1].plot(story.time_s, story.lag_s, color="tab:red")
        axes[1].set_ylabel("lag, s")
        axes[2].plot(story.time_s, story.latency_s, color="tab:blue")
        axes[2].set_ylabel("latency, s")
        axes[2].set_xlabel("seconds")
        figure.suptitle(name)
        path = folder / f"{name.replace(', ', '-').replace(' ', '-').lower()}.png"
        figure.savefig(path, dpi=120, bbox_inches="tight")
        plt.close(figure)
        paths.append(path)
    return tuple(paths)
