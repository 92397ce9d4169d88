"""Seeded runs against traces taken at an earlier version: what moved house still does the same, bit by bit.

`python -m tests.test_golden` writes the traces anew; do that only for a change that is meant to change results, and
say so in its commit.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from penstock.cli.choices import choose_policies, find_flow
from penstock.control import Cycle, Loop, PolicyRun, Settings
from penstock.dataflow import constant, sine, staircase
from penstock.dataflow.connectors import expected_load
from penstock.runtimes.simulated import Cluster, Disturbance, SimulatedClock, SimulatedRuntime
from penstock.telemetry import MachineClass, Snapshot

TRACES = Path(__file__).parent / "golden" / "traces.json"

SCENES: dict[str, dict[str, Any]] = {
    "words under elasticity": {"flow": "examples/flows/words.yaml", "policies": ["elasticity"], "for_s": 90.0},
    "primetester under nephele": {"flow": "primetester", "policies": ["nephele"], "load": staircase([(20, 40), (20, 160), (20, 60)]), "for_s": 60.0},
    "sentiment under elasticity": {"flow": "sentiment", "policies": ["elasticity"], "load": sine(60.0, 40.0, 40.0), "for_s": 60.0},
    "sentiment under ds2": {"flow": "sentiment", "policies": ["ds2"], "load": constant(60.0), "for_s": 40.0},
    "knn under shedding": {"flow": "knn", "policies": ["shedding"], "load": staircase([(20, 50), (20, 2000)]), "for_s": 60.0, "fidelity": "fluid"},
    "taxi-drives under shedding": {"flow": "taxi-drives", "policies": ["shedding"], "load": staircase([(20, 100), (40, 4000)]), "for_s": 60.0, "fidelity": "fluid"},
    "thorax under interference": {"flow": "thorax", "policies": ["interference"], "load": constant(20000.0), "for_s": 90.0, "fidelity": "fluid", "foreign": 1.7},
    "thorax under neptune": {"flow": "thorax", "policies": ["neptune"], "load": constant(3000.0), "for_s": 90.0, "fidelity": "fluid", "foreign": 1.7},
    "linear-road under provisioning": {"flow": "linear-road", "policies": ["provisioning"], "load": staircase([(20, 20), (40, 400)]), "for_s": 60.0, "fidelity": "fluid"},
}  # fmt: skip


def trace_of(scene: dict[str, Any]) -> list[dict[str, Any]]:
    """A line per cycle: the actions in full, and a digest of what was measured."""
    repository = Path(__file__).resolve().parents[1]
    reference = scene["flow"]
    dataflow = find_flow(str(repository / reference) if "/" in reference else reference)
    loads = {s.id: scene.get("load") or expected_load(s.connector) for s in dataflow.sources}
    runtime = SimulatedRuntime(
        dataflow,
        Cluster(
            classes=(MachineClass(name="machine", cores=2),),
            nodes={f"node-{i}": "machine" for i in range(4)},
            disturbances={"node-1": Disturbance(foreign=constant(scene.get("foreign", 0.0)))},
        ),
        seed=7,
        fidelity=scene.get("fidelity", "discrete"),
        loads=loads,
    )
    lines: list[dict[str, Any]] = []

    def note(cycle: Cycle, snapshot: Snapshot | None) -> None:
        assert snapshot is not None
        lines.append(
            {
                "time_s": cycle.time_s,
                "actions": [told(p.action) for p in cycle.plan.actions],
                "outcomes": [o.status for o in cycle.outcomes],
                "withheld": len(cycle.plan.withheld),
                "seen": digest(snapshot),
            }
        )

    loop = Loop(
        runtime,
        [PolicyRun(policy=c.policy, options=c.options) for c in choose_policies(scene["policies"])],
        clock=SimulatedClock(runtime),
        settings=Settings(interval_s=5.0),
        subscribers=[note],
    )
    loop.run(for_s=scene["for_s"])
    assert not loop.faults
    return lines


def told(action: Any) -> str:
    """An action in a form that outlives renamed classes and fields."""
    numbers = {
        "scale": lambda a: (a.current, a.target),
        "move": lambda a: (a.source, a.target),
        "shed": lambda a: (a.keep,),
        "switch": lambda a: (a.current, a.target),
        "pace": lambda a: (a.deadline_s,),
        "acquire": lambda a: (a.count,),
        "release": lambda a: (),
    }[action.kind](action)
    return f"{action.kind} {action.subject} {' '.join(repr(n) for n in numbers)} because {action.reason.code}"


def digest(snapshot: Snapshot) -> str:
    """What was measured, as a hash of the numbers themselves."""
    tasks = snapshot.tasks
    columns = [
        tasks.operator, tasks.index, tasks.node, tasks.processed, tasks.emitted, tasks.shed, tasks.queued,
        tasks.busy_s, tasks.cpu, tasks.state_bytes, tasks.service_s.total, tasks.latency_s.total,
        snapshot.constraints.latency_s, snapshot.sinks.records, snapshot.sinks.accuracy,
        snapshot.sources.produced_rps, snapshot.sources.backlog_records, snapshot.streams.bytes,
        snapshot.streams.remote_bytes, snapshot.nodes.own_cpu,
    ]  # fmt: skip
    bits = hashlib.sha256()
    for column in columns:
        bits.update(np.ascontiguousarray(column).tobytes())
    return bits.hexdigest()[:16]


@pytest.mark.parametrize("name", SCENES)
def test_a_seeded_run_is_the_one_of_old(name: str) -> None:
    golden = json.loads(TRACES.read_text())[name]
    assert trace_of(SCENES[name]) == golden


if __name__ == "__main__":
    TRACES.write_text(json.dumps({name: trace_of(scene) for name, scene in SCENES.items()}, indent=1) + "\n")
