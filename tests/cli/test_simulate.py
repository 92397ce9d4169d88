"""`penstock simulate` and what is told of it afterwards."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.running import penstock

QUICK = ("simulate", "primetester", "--for", "60s", "--rate-scale", "0.05", "--nodes", "8")


def simulated(*arguments: str) -> dict[str, object]:
    ran = penstock(*QUICK, "--json", *arguments)
    assert ran.code == 0, ran.err
    document = json.loads(ran.out)
    assert isinstance(document, dict)
    return document


def test_prints_one_document_with_everything_that_is_promised() -> None:
    document = simulated("--policy", "nephele")
    assert {
        "constraints",
        "throughput",
        "accuracy",
        "task_seconds",
        "node_seconds",
        "cost",
        "begun",
        "wall_s",
        "seconds",
    } <= set(document)
    (constraint,) = document["constraints"]  # type: ignore[misc]
    assert set(constraint) >= {"name", "bound_ms", "held", "mean_ms", "p95_ms"}
    assert 0 < constraint["held"] <= 1


def test_the_same_seed_gives_the_same_document_and_another_seed_another() -> None:
    def without_times(document: dict[str, object]) -> dict[str, object]:
        return {k: v for k, v in document.items() if k not in ("wall_s", "run", "seed")}

    first, again, other = simulated("--seed", "7"), simulated("--seed", "7"), simulated("--seed", "8")
    assert without_times(first) == without_times(again)
    assert without_times(first) != without_times(other)


def test_scales_stretch_time_and_rate() -> None:
    # 1,200/s in the second minute becomes 2,400/s after half a minute.
    document = simulated("--time-scale", "0.5", "--rate-scale", "0.04", "--policy", "nephele")
    assert document["throughput"] == pytest.approx((30 * 400 + 30 * 800) / 60, rel=0.15)


def test_dry_run_decides_and_does_nothing(tmp_path: Path) -> None:
    journal = str(tmp_path / "runs.sqlite")
    document = simulated("--policy", "nephele", "--dry-run", "--journal", journal)
    assert not document["begun"]
    told = penstock("explain", "--journal", journal)
    assert told.code == 0
    assert "scale tester" in told.out


def test_explain_tells_the_story(tmp_path: Path) -> None:
    journal = str(tmp_path / "runs.sqlite")
    simulated("--policy", "nephele", "--journal", journal)
    told = penstock("explain", "last", "--journal", journal)
    assert told.code == 0, told.err
    assert "bottleneck" in told.out
    assert "In short" in told.out
    as_json = penstock("explain", "--journal", journal, "--json")
    assert json.loads(as_json.out)["summary"]["cycles"] == 12


def test_table_for_people() -> None:
    ran = penstock(*QUICK)
    assert ran.code == 0
    assert "task-hours" in ran.out


def test_elasticity_rents_machines_up_to_the_limit_and_gives_them_back() -> None:
    flow = (
        "simulate",
        "primetester",
        "--rate-scale",
        "0.3",
        "--fidelity",
        "fluid",
        "--for",
        "10m",
        "--nodes",
        "4",
    )
    found = {}
    for limit in ((), ("--max-nodes", "30")):
        ran = penstock(*flow, "--policy", "elasticity", "--json", *limit)
        assert ran.code == 0, ran.err
        found[limit] = json.loads(ran.out)
    fixed, rented = found.values()
    assert fixed["node_seconds"] == 4 * 600
    assert set(fixed["begun"]).isdisjoint({"acquire", "release"})
    assert {"acquire", "release"} <= set(rented["begun"])
    assert rented["node_seconds"] <= 30 * 600
    assert rented["constraints"][0]["held"] > 3 * fixed["constraints"][0]["held"]


def test_the_load_is_told_before_it_starts() -> None:
    ran = penstock(*QUICK)
    assert "records/s on average" in ran.err
    assert "simulating 1m" in ran.err
