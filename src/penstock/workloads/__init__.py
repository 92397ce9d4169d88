"""The papers' applications, written once and run on both runtimes; each is known by its command-line name."""

from collections.abc import Callable

from penstock.dataflow import Dataflow
from penstock.workloads.primetester import primetester
from penstock.workloads.sentiment import sentiment

WORKLOADS: dict[str, Callable[[], Dataflow]] = {
    "primetester": primetester,
    "sentiment": sentiment,
}

__all__ = ["WORKLOADS", "primetester", "sentiment"]
