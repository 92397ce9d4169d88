"""The papers' applications, written once and run on both runtimes; each is known by its command-line name."""

from collections.abc import Callable

from penstock.dataflow import Dataflow
from penstock.workloads.ecg import ecg
from penstock.workloads.knn import knn
from penstock.workloads.linear_road import linear_road
from penstock.workloads.primetester import primetester
from penstock.workloads.sentiment import sentiment
from penstock.workloads.shapes import diamond, linear, star
from penstock.workloads.smart_homes import smart_homes
from penstock.workloads.taxi_drives import taxi_drives
from penstock.workloads.taxi_routes import taxi_routes
from penstock.workloads.thorax import thorax

WORKLOADS: dict[str, Callable[[], Dataflow]] = {
    "primetester": primetester,
    "sentiment": sentiment,
    "linear-road": linear_road,
    "smart-homes": smart_homes,
    "taxi-routes": taxi_routes,
    "taxi-drives": taxi_drives,
    "knn": knn,
    "linear": linear,
    "diamond": diamond,
    "star": star,
    "thorax": thorax,
    "ecg": ecg,
}

__all__ = [
    "WORKLOADS",
    "diamond",
    "ecg",
    "knn",
    "linear",
    "linear_road",
    "primetester",
    "sentiment",
    "smart_homes",
    "star",
    "taxi_drives",
    "taxi_routes",
    "thorax",
]
