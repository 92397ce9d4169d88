"""`penstock plan`: one document, the same numbers for people, and impossible demands told with exit 2."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from penstock.api.machine_classes import executor_class
from penstock.cli.output import nothing_printed
from penstock.errors import InputError
from tests.cli.running import penstock
from tests.simulator.histories import EVENT_LOG, PROGRESS

TOPICS = """
name: topics
operators:
  tweets:
    kind: source
    connector: {kind: rate, rows_per_second: 10}
  classify:
    kind: map
    inputs: [tweets]
    alternates:
      - {name: bayes, value: 0.65, cost_s: 0.01}
      - {name: lda, value: 0.70, cost_s: 0.02}
      - {name: mwe, value: 1.00, cost_s: 0.05}
  topics:
    kind: sink
    inputs: [classify]
    connector: {kind: memory, table: results}
"""
CLASSES = """
classes:
  - {name: small, cores: 1, price_per_hour: 0.05, billing: hour}
  - {name: big, cores: 8, speed: 1.2, price_per_hour: 0.40, billing: second, minimum_s: 60, startup_s: 30}
  - {name: odd, cores: 4, price_per_hour: 0.3, billing: second, spot: {discount: 0.5, interruptions_per_hour: 0.1}}
"""


@pytest.fixture
def flow(tmp_path: Path) -> str:
    path = tmp_path / "topics.yaml"
    path.write_text(TOPICS, encoding="utf-8")
    return str(path)


@pytest.fixture
def classes(tmp_path: Path) -> str:
    path = tmp_path / "classes.yaml"
    path.write_text(CLASSES, encoding="utf-8")
    return str(path)


@pytest.mark.parametrize("policy", ["best", "ce", "sh", "ga", "br"])
def test_a_plan_as_json(flow: str, policy: str) -> None:
    ran = penstock("plan", flow, "--rate", "200", "--classes", "m1", "--policy", policy, "--json")
    assert ran.code == 0, ran.err
    document = json.loads(ran.out)
    assert document["policy"] == policy
    assert document["throughput"] >= 0.8 - 1e-6
    assert document["cost_per_hour"] == pytest.approx(
        sum(m["count"] * m["price_per_hour"] for m in document["machines"])
    )
    assert sum(o["cores"] for o in document["operators"]) == document["cores"]
    assert sum(sum(m["cores"].values()) for m in document["mapping"]) == document["cores"]
    assert {o["alternate"] for o in document["operators"]} <= {"default", "bayes", "lda", "mwe"}
    assert document["why"]


def test_a_file_of_classes_and_a_comparison(flow: str, classes: str) -> None:
    ran = penstock("plan", flow, "--rate", "tweets=300", "--classes", classes, "--policy", "all", "--json")
    assert ran.code == 0, ran.err
    plans = {p["policy"]: p for p in json.loads(ran.out)["plans"]}
    assert set(plans) == {"best", "ce", "sh", "ga", "br"}
    assert plans["best"]["profit"] >= plans["ce"]["profit"] - 1e-9
    shown = penstock("plan", flow, "--rate", "300", "--classes", classes)
    assert "classify" in shown.out
    assert shown.code == 0


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--rate", "1e14"], "of the largest machines"),
        (["--rate", "5000", "--budget", "0.01"], "the budget is 0.01"),
        (["--rate", "-4"], "must be finite and not negative"),
        (["--rate", "5", "--rate", "nowhere=5"], "'nowhere' is no source"),
        ([], "give --rate N"),
        (["--rate", "5", "--classes", "m2"], "known are current, m1, spot"),
        (["--rate", "5", "--throughput", "1.5"], "lies in 0..1"),
        (["--rate", "5", "--break-even", "1", "--least-break-even", "2"], "break-even"),
    ],
)
def test_impossible_demands(flow: str, arguments: list[str], says: str) -> None:
    ran = penstock("plan", flow, *arguments, "--json")
    assert ran.code == 2
    assert not ran.out
    assert "".join(says.split()) in "".join(ran.err.split())
    assert "Traceback" not in ran.err


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("classes: []", "at least 1"),
        ("classes: [{name: a, cores: 0, price_per_hour: 1}]", "cores"),
        ("classes: [{name: a, cores: 1, price_per_hour: 1, size: 3}]", "size"),
        ("classes: [{name: a, cores: 1, price_per_hour: .nan}]", "price_per_hour"),
        (
            "classes: [{name: a, cores: 1, price_per_hour: 1}, {name: a, cores: 2, price_per_hour: 1}]",
            "called 'a'",
        ),
        ("[", "YAML"),
    ],
)
def test_bad_class_files(flow: str, tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text(text, encoding="utf-8")
    ran = penstock("plan", flow, "--rate", "5", "--classes", str(path))
    assert ran.code == 2
    assert "".join(says.split()) in "".join(ran.err.split())


def test_an_executor_costs_its_share_of_a_machine(classes: str) -> None:
    executor = executor_class("big", classes, cores=2, available=3)
    assert executor.price_per_hour == pytest.approx(0.40 * 2 / 8)
    assert (executor.minimum_s, executor.available) == (60, 3)
    with pytest.raises(InputError, match="did you mean 'small'"):
        executor_class("smal", classes, cores=1, available=None)


def spark(*arguments: str) -> dict[str, Any]:
    ran = penstock("plan", *arguments, "--json")
    assert ran.code == 0, ran.err
    found = json.loads(ran.out)["spark"]
    assert isinstance(found, dict)
    return found


def test_settings_for_spark_can_be_pasted(flow: str, classes: str) -> None:
    found = spark(flow, "--rate", "200", "--classes", classes)
    assert found["alternates"] == {"classify": "mwe"}, "without a budget, the most value"
    cores = found["executors"] * found["executor_cores"]
    speed = {"small": 1.0, "big": 1.2, "odd-spot": 1.0}[found["class"]]
    assert 0.8 * cores * speed >= 200 * 0.05, "a fifth of the cores stays free"
    settings = found["settings"]
    assert settings["standalone"]["spark.cores.max"] == str(cores)
    assert settings["yarn"]["spark.executor.instances"] == str(found["executors"])
    selector = "spark.kubernetes.executor.node.selector.node.kubernetes.io/instance-type"
    assert settings["kubernetes"][selector] == found["class"]
    assert found["carries_rps"] >= 200
    assert found["next_cheaper"]["cost_per_hour"] < found["cost_per_hour"]
    assert found["next_cheaper"]["value"] < found["value"]
    assert found["prices"].endswith("classes.yaml")


def test_a_budget_on_spark_takes_cheaper_alternates_and_says_what_more_money_brings(flow: str) -> None:
    free = spark(flow, "--rate", "2000", "--classes", "current")
    tight = spark(
        flow, "--rate", "2000", "--classes", "current", "--budget", str(0.6 * free["cost_per_hour"])
    )
    assert tight["value"] < free["value"]
    assert tight["cost_per_hour"] <= 0.6 * free["cost_per_hour"]
    assert tight["next_better"]["value"] > tight["value"]
    assert tight["next_better"]["cost_per_hour"] > 0.6 * free["cost_per_hour"]


@pytest.mark.parametrize("recorded", [EVENT_LOG, PROGRESS])
def test_a_recorded_run_is_planned_from_what_it_was_measured_to_do(recorded: Path) -> None:
    once = spark(str(recorded), "--recorded")
    twice = spark(str(recorded), "--recorded", "--rate", str(200 * once["rate_rps"]))
    assert once["carries_rps"] >= once["rate_rps"]
    assert twice["cost_per_hour"] > once["cost_per_hour"]
    assert twice["executors"] * twice["executor_cores"] > once["executors"] * once["executor_cores"]


def test_a_latency_that_no_executors_reach_is_explained(flow: str, tmp_path: Path) -> None:
    goal = "constraints:\n  - {sequence: tweets -> classify -> topics, mean_ms: 10, window_s: 10}\n"
    path = tmp_path / "fast.yaml"
    path.write_text(Path(flow).read_text(encoding="utf-8") + goal, encoding="utf-8")
    found = spark(str(path), "--rate", "20", "--classes", "m1")
    assert "out of reach on any number of executors" in found["error"]


def test_what_a_solver_prints_is_not_on_standard_output(capfd: pytest.CaptureFixture[str]) -> None:
    with nothing_printed():
        os.write(1, b"HiGHS run time\n")
    seen = capfd.readouterr()
    assert seen.out == ""
    assert "HiGHS" in seen.err
