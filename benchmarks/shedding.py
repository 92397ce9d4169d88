"""Live on Spark, through Kafka: two applications at twice the capacity, with shedding and without.

    python benchmarks/shedding.py [--calm 15] [--overload 45] [--after 21] [--plot DIR] [--json]

One broker and one Spark with two cores on this machine; `alerts` may lose nothing, `trends` all but a tenth, and the
load of `trends` jumps and falls again (`penstock_papers.quality_of_data.overload`). Each way runs on topics of its own
with the same load. Needs `confluent-kafka`. About three and a half minutes. Exit 1: a goal was missed.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

from penstock.cli.output import print_json, print_table
from penstock.spark.cluster.jars import kafka_connector_conf
from penstock.spark.session import create_session
from penstock_papers.common.kafka_broker import KafkaBroker
from penstock_papers.quality_of_data.overload import ALERTS, TRENDS, Moment, Trial, Verdict, run_trial

WAYS = {"penstock": True, "plain Spark": False}


def measure(trial: Trial) -> dict[str, list[Moment]]:
    """Both ways, one after the other, in one Spark."""
    found = {}
    with tempfile.TemporaryDirectory(prefix="penstock-") as name:
        folder = Path(name)
        (folder / "kafka").mkdir()
        with KafkaBroker(folder / "kafka") as broker:
            conf = {"spark.driver.memory": "1g", "spark.local.dir": name, **kafka_connector_conf()}
            spark = create_session("local[2]", "penstock bench shedding", extra_conf=conf)
            spark.sparkContext.setLogLevel("OFF")
            try:
                for way, shed in WAYS.items():
                    print(f"{way} …", file=sys.stderr, flush=True)
                    label = way.replace(" ", "-")
                    found[way] = run_trial(spark, broker, folder, trial, shed=shed, label=label)
            finally:
                spark.stop()
    return found


def goals(trial: Trial, found: Verdict) -> list[tuple[str, float, float, bool]]:
    """Name, figure, what was asked, whether it was reached."""
    bound = 2 * trial.lag_s
    steady = found.latency_s[1] / found.latency_s[0]
    growth, told = found.plain_growth_rps, found.trends_told
    return [
        (f"{ALERTS}: least accuracy", found.alerts_accuracy, 1.0, found.alerts_accuracy == 1),
        (f"{TRENDS}: least share it was told to keep", told, trial.min_accuracy, told >= trial.min_accuracy),
        ("highest lag, s", found.highest_lag_s, bound, found.highest_lag_s <= bound),
        ("lag in the second half, s", found.settled_lag_s, trial.lag_s, found.settled_lag_s <= trial.lag_s),
        ("latency of alerts, second half over first", steady, 1.1, steady <= 1.1),
        ("intervals until all is kept again", found.intervals_to_all, 3.0, found.intervals_to_all <= 3),
        ("plain Spark: growth of the lag, records/s", growth, 0.0, growth > 0),
    ]


def plot(folder: Path, trial: Trial, found: dict[str, list[Moment]]) -> Path:
    """Lag, latency and accuracy over time."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, panels = plt.subplots(3, 1, figsize=(9, 9), sharex=True)
    for way, style in zip(WAYS, ("-", ":"), strict=True):
        times = [m.time_s for m in found[way]]
        for i, (name, colour) in enumerate(((ALERTS, "tab:red"), (TRENDS, "tab:blue"))):
            label = f"{name}, {way}"
            panels[0].plot(times, [m.lag_s[i] for m in found[way]], style, color=colour, label=label)
            late = [(m.time_s, m.latency_s[i]) for m in found[way] if m.latency_s[i] is not None]
            panels[1].plot(*zip(*late, strict=True), style, color=colour, label=label)
            panels[2].plot(times, [m.accuracy[i] for m in found[way]], style, color=colour, label=label)
    for panel, title in zip(panels, ("lag, s", "mean latency, s", "accuracy"), strict=True):
        panel.set_ylabel(title)
        panel.axvspan(trial.calm_s, trial.calm_s + trial.overload_s, color="0.93")
    panels[0].legend()
    panels[2].axhline(trial.min_accuracy, color="0.5", linewidth=0.8)
    panels[2].set_xlabel("s; grey: overload")
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "shedding.png"
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    return path


def main() -> int:
    """Run both, print the tables and the goals."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--calm", type=float, default=15.0, help="seconds before the jump")
    parser.add_argument("--overload", type=float, default=45.0, help="seconds of it")
    parser.add_argument("--after", type=float, default=21.0, help="seconds after it")
    parser.add_argument("--plot", type=Path, help="write a plot into this folder")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    trial = Trial(calm_s=given.calm, overload_s=given.overload, after_s=given.after)
    found = measure(trial)
    verdict = Verdict.of(trial, found["penstock"], found["plain Spark"])
    reached = goals(trial, verdict)
    plots = [str(plot(given.plot, trial, found))] if given.plot else []
    if given.json:
        rows = [{"goal": g, "figure": f, "asked": a, "holds": h} for g, f, a, h in reached]
        ways = {way: [asdict(m) for m in moments] for way, moments in found.items()}
        print_json({"ways": ways, "verdict": asdict(verdict), "goals": rows, "plots": plots})
    else:
        for way, moments in found.items():
            print_table(
                f"{way}; overload of {trial.needed_cores:.1f} cores from {trial.calm_s:g} s on",
                [
                    "s",
                    *(f"{what} {n}" for what in ("lag s", "latency s", "accuracy") for n in (ALERTS, TRENDS)),
                ],
                [[m.time_s, *m.lag_s, *m.latency_s, *m.accuracy] for m in moments],
            )
        print_table("\nGoals", ["goal", "figure", "asked", "holds"], reached)
        for path in plots:
            print(f"plot     {path}")
    return 0 if all(holds for *_, holds in reached) else 1


if __name__ == "__main__":
    sys.exit(main())
