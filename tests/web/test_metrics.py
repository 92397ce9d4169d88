"""What Prometheus gets: readable by its own parser, true to the snapshot, and the names that the docs rely on."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from penstock.web.metrics import FIGURES, Metrics
from tests.web.runs import a_loop

GRAFANA = Path(__file__).resolve().parents[2] / "docs" / "grafana"
NAMES = {figure.name for figure in FIGURES}
LABELS = {figure.name: figure.labels for figure in FIGURES}
NOT_IN_THIS_RUN = {"faults", "changes", "unreached", "shed_records", "effects", "withheld"}


@pytest.fixture(scope="module")
def families() -> dict[str, dict[tuple[str, ...], float]]:
    """Name of each sample, and its value by labels, after a run that was late once."""
    metrics, loop = Metrics(), a_loop()
    loop.subscribers.append(metrics)
    loop.run(for_s=130.0)
    found: dict[str, dict[tuple[str, ...], float]] = {}
    for family in text_string_to_metric_families(metrics.text().decode()):
        for sample in family.samples:
            labels = tuple(sample.labels[name] for name in LABELS[sample.name])
            found.setdefault(sample.name, {})[labels] = sample.value
    return found


def test_every_declared_figure_and_nothing_else_is_exported(families: dict[str, object]) -> None:
    assert families.keys() <= NAMES
    assert NAMES - families.keys() <= {f"penstock_{name}_total" for name in NOT_IN_THIS_RUN}


def test_figures_are_those_of_the_last_snapshot(families: dict[str, dict[tuple[str, ...], float]]) -> None:
    goal = ("orders", "orders.on-time")
    assert families["penstock_goal_bound_seconds"][goal] == 2.0
    assert families["penstock_goal_latency_seconds"][goal] == 2.6
    assert families["penstock_goal_held"][goal] == 0.0
    assert families["penstock_executors"] == {("ready",): 3.0, ("starting",): 0.0, ("draining",): 0.0}
    assert sum(families["penstock_executor_state_partitions"].values()) == 12.0
    assert families["penstock_cycles_total"] == {(): 26.0}
    assert families["penstock_batches_total"] == {("orders",): 26.0}
    assert families["penstock_mode"] == {("act",): 1.0}
    assert families["penstock_decisions_total"]["elasticity", "move"] >= 1.0
    assert sum(families["penstock_executor_seconds_total"].values()) >= 3 * 26 * 4.9
    assert all(0 <= share <= 1 for share in families["penstock_value_given_up_ratio"].values())


def test_names_follow_the_convention() -> None:
    for figure in FIGURES:
        assert re.fullmatch(r"penstock_[a-z0-9_]+", figure.name)
        assert (figure.kind == "counter") == figure.name.endswith("_total")
        assert not re.search(r"_(ms|s|rps|percent)$", figure.name), "base units, spelt out"


def named(text: str) -> set[str]:
    return set(re.findall(r"penstock_[a-z0-9_]+", text))


def test_dashboard_and_alert_rules_use_names_that_exist() -> None:
    board = json.loads((GRAFANA / "dashboard.json").read_text())
    queries = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    assert len(queries) > 15
    assert set().union(*map(named, queries)) <= NAMES
    rules = yaml.safe_load((GRAFANA / "alerts.yaml").read_text())["groups"][0]["rules"]
    assert len(rules) >= 8
    for rule in rules:
        assert named(rule["expr"])
        assert named(rule["expr"]) <= NAMES
        labels = {label for name in named(rule["expr"]) for label in LABELS[name]}
        used = re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"])
        assert {*used, *re.findall(r"(\w+)=~?\"", rule["expr"])} <= labels, rule["alert"]


def test_each_label_that_a_panel_groups_by_is_one_of_its_figures() -> None:
    board = json.loads((GRAFANA / "dashboard.json").read_text())
    for target in (target for panel in board["panels"] for target in panel["targets"]):
        labels = {label for name in named(target["expr"]) for label in LABELS[name]} | {
            "le",
            "job",
            "instance",
        }
        grouped = re.findall(r"by \(([^)]*)\)", target["expr"])
        used = {label.strip() for group in grouped for label in group.split(",")}
        assert used | set(re.findall(r"{{ *(\w+) *}}", target.get("legendFormat", ""))) <= labels, target


def test_the_end_of_a_query_is_seen_by_its_last_batch() -> None:
    metrics, loop = Metrics(), a_loop()
    loop.subscribers.append(metrics)
    loop.run(for_s=10.0)
    name = 'penstock_query_last_batch_timestamp_seconds{query="orders"}'
    (before,) = [line for line in metrics.text().decode().splitlines() if line.startswith(name)]
    metrics(replace(loop.step(), brief=None), None)  # a turn in which nothing could be seen
    assert before in metrics.text().decode().splitlines()
