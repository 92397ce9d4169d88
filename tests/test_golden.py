"""Seeded runs against traces taken at an earlier version: what moved house still does the same, bit by bit.

`python -m tests.test_golden` writes the traces anew; do that only for a change that is meant to change results, and
say so in its commit.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from penstock.api.choices import choose_policies, find_flow
from penstock.control import Cycle, Loop, Settings
from penstock.dataflow import Load, constant, sine, staircase
from penstock.dataflow.connectors import expected_load
from penstock.simulator import Cluster, Disturbance, SimulatedClock, SimulatedRuntime
from penstock.simulator.options import Fidelity
from penstock.telemetry import MachineClass, Snapshot

TRACES = Path(__file__).parent / "golden" / "traces.json"


@dataclass(frozen=True, kw_only=True)
class Scene:
    flow: str
    policy: str
    load: Load | None = None
    for_s: float = 60.0
    fidelity: Fidelity = "discrete"
    foreign: float = 0.0


SCENES = (
    Scene(flow="examples/flows/words.yaml", policy="elasticity", for_s=90.0),
    Scene(flow="primetester", policy="nephele", load=staircase([(20, 40), (20, 160), (20, 60)])),
    Scene(flow="sentiment", policy="elasticity", load=sine(60.0, 40.0, 40.0)),
    Scene(flow="sentiment", policy="ds2", load=constant(60.0), for_s=40.0),
    Scene(flow="knn", policy="shedding", load=staircase([(20, 50), (20, 2000)]), fidelity="fluid"),
    Scene(flow="taxi-drives", policy="shedding", load=staircase([(20, 100), (40, 4000)]), fidelity="fluid"),
    Scene(
        flow="thorax",
        policy="interference",
        load=constant(20000.0),
        for_s=90.0,
        fidelity="fluid",
        foreign=1.7,
    ),
    Scene(flow="thorax", policy="neptune", load=constant(3000.0), for_s=90.0, fidelity="fluid", foreign=1.7),
    Scene(flow="linear-road", policy="provisioning", load=staircase([(20, 20), (40, 400)]), fidelity="fluid"),
)


def name_of(scene: Scene) -> str:
    return f"{Path(scene.flow).stem} under {scene.policy}"


def trace_of(scene: Scene) -> list[dict[str, Any]]:
    """A line per cycle: the actions in full, and a digest of what was measured."""
    repository = Path(__file__).resolve().parents[1]
    reference = scene.flow
    dataflow = find_flow(str(repository / reference) if "/" in reference else reference)
    loads = {s.id: scene.load or expected_load(s.connector) for s in dataflow.sources}
    runtime = SimulatedRuntime(
        dataflow,
        Cluster(
            classes=(MachineClass(name="machine", cores=2),),
            nodes={f"node-{i}": "machine" for i in range(4)},
            disturbances={"node-1": Disturbance(foreign=constant(scene.foreign))},
        ),
        seed=7,
        fidelity=scene.fidelity,
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
        choose_policies([scene.policy]),
        clock=SimulatedClock(runtime),
        settings=Settings(interval_s=5.0),
        subscribers=[note],
    )
    loop.run(for_s=scene.for_s)
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


@pytest.mark.parametrize("scene", SCENES, ids=name_of)
def test_a_seeded_run_is_the_one_of_old(scene: Scene) -> None:
    golden = json.loads(TRACES.read_text())[name_of(scene)]
    assert trace_of(scene) == golden


if __name__ == "__main__":
    TRACES.write_text(json.dumps({name_of(scene): trace_of(scene) for scene in SCENES}, indent=1) + "\n")
