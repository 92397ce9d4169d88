"""`penstock whatif` as people type it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from penstock.dataflow import staircase
from tests.cli.running import penstock
from tests.simulator.histories import EVENT_LOG, PROGRESS, a_runtime, journal_of

STEP = staircase([(60, 400), (120, 1600), (60, 400)])


@pytest.fixture(scope="module")
def journal(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("whatif") / "runs.sqlite"
    journal_of(path, a_runtime(STEP, executors=2), for_s=240.0)
    return path


def asked(*arguments: str) -> dict[str, object]:
    ran = penstock("whatif", *arguments, "--json", "--draws", "3")
    assert ran.code == 0, ran.err
    document = json.loads(ran.out)
    assert isinstance(document, dict)
    return document


def test_the_document_has_what_is_promised(journal: Path) -> None:
    found = asked("last", "--journal", str(journal), "--policy", "elasticity", "--executors", "1..4")
    for part in ("actual", "predicted"):
        figures = found[part]
        assert isinstance(figures, dict)
        assert set(figures) >= {"latency_ms", "held", "executor_seconds", "cost", "actions"}
        assert set(figures["latency_ms"]) == {"mean", "p50", "p95", "p99"}
    assert set(found["interval"]) == set(found["error"])  # type: ignore[call-overload]
    labels = [s["label"] for s in found["scenarios"]]  # type: ignore[attr-defined]
    assert labels == ["elasticity", "1 executor", "2 executors", "3 executors", "4 executors"]


def test_a_policy_acts_with_reasons_and_a_larger_size_is_faster(journal: Path) -> None:
    found = asked(
        str(journal), "--policy", "elasticity", "--executors", "1..4", "--latency", "2s", "--rate", "x1.5"
    )
    scenarios = found["scenarios"]
    actions = scenarios[0]["predicted"]["actions"]  # type: ignore[index]
    assert "scale" in {a["kind"] for a in actions}
    assert all(a["why"] for a in actions)
    sizes = [s["predicted"] for s in scenarios[1:]]  # type: ignore[index]
    late = [s["latency_ms"]["mean"] for s in sizes]
    assert late == sorted(late, reverse=True)
    assert [s["executor_seconds"] for s in sizes] == pytest.approx(
        [n * sizes[0]["executor_seconds"] for n in (1, 2, 3, 4)]
    )


def test_the_cheapest_size_depends_on_the_bound(journal: Path) -> None:
    found = asked(str(journal), "--executors", "1..5", "--latency", "800ms,20s")
    strict, loose = found["cheapest"]  # type: ignore[misc]
    assert loose["executors"] < (strict["executors"] or 6)


def test_as_it_was_says_its_own_error_and_a_kill_shows(journal: Path) -> None:
    calm = asked(str(journal), "--policy", "as-it-was")
    assert abs(calm["error"]["latency_ms.mean"]) < 0.1  # type: ignore[index]
    killed = asked(str(journal), "--policy", "as-it-was", "--kill", "100s", "--kill", "140s")
    before, after = (d["predicted"]["latency_ms"]["p99"] for d in (calm, killed))  # type: ignore[index]
    assert after > 1.2 * before


def test_a_trace_replaces_the_load(journal: Path, tmp_path: Path) -> None:
    trace = tmp_path / "rates.csv"
    trace.write_text("timestamp,value\n0,100\n60,100\n120,100\n")
    found = asked(str(journal), "--rate-trace", str(trace), "--executors", "2")
    assert found["predicted"]["executor_seconds"] == pytest.approx(2 * 180.0)  # type: ignore[index]


@pytest.mark.parametrize("path", [EVENT_LOG, PROGRESS], ids=["event log", "progress"])
def test_people_read_what_was_assumed_and_how_far_off_it_is(path: Path) -> None:
    ran = penstock("whatif", str(path), "--latency", "2s", "--executors", "1..2", "--draws", "2")
    assert ran.code == 0, ran.err
    for text in ("actual", "Error of the run as it was", "assumed:", "not known:", "executor"):
        assert text in ran.out


@pytest.mark.parametrize(
    ("arguments", "fragment"),
    [
        (["nowhere"], "neither a file nor a run"),
        ([str(PROGRESS), "--rate", "twice"], "--rate takes x2"),
        ([str(PROGRESS), "--rate", "x0"], "above 0"),
        ([str(PROGRESS), "--executors", "8..2"], "--executors takes 4 or 2..8"),
        ([str(PROGRESS), "--executors", "many"], "--executors takes 4 or 2..8"),
        ([str(PROGRESS), "--was", "2"], "--was takes 2x4"),
        ([str(PROGRESS), "--policy", "elasticity"], "give --latency"),
        ([str(PROGRESS), "--policy", "elastic", "--latency", "1s"], "did you mean 'elasticity'?"),
        ([str(PROGRESS), "--policy", "as-it-was,elasticity"], "stands alone"),
        ([str(PROGRESS), "--statistic", "p59"], "there is no 'p59'"),
        ([str(PROGRESS), "--latency", "soon"], "not a length of time"),
        ([str(PROGRESS), "--rate-trace", "nowhere.csv"], "cannot read rate trace"),
        (
            [str(PROGRESS), "--policy", "elasticity", "--latency", "1s", "--set", "elasticity.margn=1"],
            "did you mean 'margin'?",
        ),
    ],
)
def test_what_cannot_be_asked_is_told(
    arguments: list[str], fragment: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    ran = penstock("whatif", *arguments)
    assert ran.code == 2
    assert not ran.out
    assert "".join(fragment.split()) in "".join(ran.err.split())
