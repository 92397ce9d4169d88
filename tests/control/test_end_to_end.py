"""Real policies on a real simulation, through the whole loop: what is journalled can be replayed and explained."""

from pathlib import Path

import pytest

from penstock.control import Loop, PolicyRun, SqliteJournal, as_text, explain, replay
from penstock.dataflow import Alternate, staircase
from penstock.policies.shedding import Shedding, SheddingOptions
from penstock.simulator import Cluster, SimulatedClock, SimulatedRuntime
from penstock.telemetry import MachineClass
from penstock.testing import a_dataflow
from penstock_papers.nephele.method import Reactive, ReactiveOptions


@pytest.mark.slow
def test_a_simulated_run_is_replayed_exactly_and_explained(tmp_path: Path) -> None:
    flow = a_dataflow(alternates=(Alternate(cost_s=0.002),), parallelism=(1, 16), bound_ms=40)
    runtime = SimulatedRuntime(
        flow,
        Cluster.of(MachineClass(name="m", cores=4, price_per_hour=0.1), 4),
        seed=3,
        fidelity="fluid",
        loads={flow.sources[0].id: staircase([(40, 300), (40, 3000), (40, 300)])},
    )
    policies = [
        PolicyRun(policy=Reactive(), options=ReactiveOptions()),
        PolicyRun(policy=Shedding(), options=SheddingOptions()),
    ]
    with SqliteJournal(tmp_path / "journal.db") as journal:
        loop = Loop(runtime, policies, clock=SimulatedClock(runtime), journal=journal)
        loop.run(for_s=120)
        assert loop.faults == {}
        assert loop.run_id is not None
        replayed = list(replay(journal, loop.run_id, policies))
        story = explain(journal, loop.run_id)
    assert len(replayed) == 24
    assert [r.recorded.number for r in replayed if not r.same] == []
    assert story.summary.begun["scale"] >= 1
    # When the load rises tenfold, growing is tried before anything is thrown away.
    kinds = [{p.action.kind for p in r.plan.actions} - {"pace"} for r in replayed]
    assert next(k for k in kinds if k) == {"scale"}
    assert "scale work from 1 to" in as_text(story)
