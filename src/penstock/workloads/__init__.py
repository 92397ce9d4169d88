"""The papers' applications, written once and run on both runtimes; each is known by its command-line name.

Each is imported when it is asked for: the Python workers of an executor import this package with any one of them, and
some of them need libraries that take a second to load.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module

from penstock.dataflow import Dataflow


@dataclass(frozen=True, slots=True)
class Workload:
    """A workload by the name of its module here and of its function in it; calling it makes the dataflow."""

    module: str
    function: str

    def __call__(self) -> Dataflow:
        """The dataflow with all defaults."""
        made: Callable[[], Dataflow] = getattr(import_module(f"{__name__}.{self.module}"), self.function)
        return made()


WORKLOADS: dict[str, Workload] = {
    "primetester": Workload("primetester", "primetester"),
    "sentiment": Workload("sentiment", "sentiment"),
    "enrichment": Workload("enrichment", "enrichment"),
    "linear-road": Workload("linear_road", "linear_road"),
    "smart-homes": Workload("smart_homes", "smart_homes"),
    "taxi-routes": Workload("taxi_routes", "taxi_routes"),
    "taxi-drives": Workload("taxi_drives", "taxi_drives"),
    "knn": Workload("knn", "knn"),
    "linear": Workload("shapes", "linear"),
    "diamond": Workload("shapes", "diamond"),
    "star": Workload("shapes", "star"),
    "thorax": Workload("thorax", "thorax"),
    "ecg": Workload("ecg", "ecg"),
}

__all__ = ["WORKLOADS", "Workload"]
