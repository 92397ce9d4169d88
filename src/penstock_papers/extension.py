"""What the papers add to Penstock's command line."""

from __future__ import annotations

from penstock.extensions import Extension

_HERE = "penstock_papers"

EXTENSION = Extension(
    workloads={
        "primetester": f"{_HERE}.nephele.primetester:primetester",
        "sentiment": f"{_HERE}.nephele.sentiment:sentiment",
        "enrichment": f"{_HERE}.nephele.enrichment:enrichment",
        "linear-road": f"{_HERE}.dynamic_dataflows.linear_road:linear_road",
        "smart-homes": f"{_HERE}.i_scheduler.smart_homes:smart_homes",
        "taxi-routes": f"{_HERE}.i_scheduler.taxi_routes:taxi_routes",
        "taxi-drives": f"{_HERE}.quality_of_data.taxi_drives:taxi_drives",
        "knn": f"{_HERE}.quality_of_data.knn:knn",
        "linear": f"{_HERE}.i_scheduler.shapes:linear",
        "diamond": f"{_HERE}.i_scheduler.shapes:diamond",
        "star": f"{_HERE}.i_scheduler.shapes:star",
        "thorax": f"{_HERE}.neptune.thorax:thorax",
        "ecg": f"{_HERE}.neptune.ecg:ecg",
    },
    policies={
        "nephele": f"{_HERE}.nephele.method:Reactive",
        "neptune": f"{_HERE}.neptune.method:Neptune",
        "ds2": f"{_HERE}.rivals.autoscalers:Ds2",
        "threshold": f"{_HERE}.rivals.autoscalers:Threshold",
        "fixed": f"{_HERE}.rivals.autoscalers:Fixed",
    },
    solvers={
        name: f"{_HERE}.i_scheduler.solvers:{function}"
        for name, function in {
            "i-scheduler": "i_scheduler",
            "i-scheduler-0": "i_scheduler_0",
            "metis": "metis",
            "kahypar": "kahypar",
            "round-robin": "in_turn",
            "r-storm": "r_storm",
            "ols": "ols",
            "ols-few": "ols_few",
            "t-storm": "t_storm",
            "flink": "flink",
            "least-cpu": "least_cpu",
        }.items()
    },
    instances={
        name: f"{_HERE}.i_scheduler.instances:{name}_instance" for name in ("linear", "diamond", "star")
    },
    deciders={
        "ce": f"{_HERE}.dynamic_dataflows.deciders:ce",
        "sh": f"{_HERE}.dynamic_dataflows.deciders:sh",
        "ga": f"{_HERE}.dynamic_dataflows.genetic:deploy_genetic",
        "br": f"{_HERE}.dynamic_dataflows.brute:deploy_brute",
    },
    papers={
        "nephele": f"{_HERE}.nephele.reproduction:reproduce",
        "neptune": f"{_HERE}.neptune.reproduction:reproduce",
        "dynamic-dataflows": f"{_HERE}.dynamic_dataflows.reproduction:reproduce",
        "i-scheduler": f"{_HERE}.i_scheduler.reproduction:reproduce",
        "quality-of-data": f"{_HERE}.quality_of_data.reproduction:reproduce",
    },
)
