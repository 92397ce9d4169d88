"""A driver of its own, to be killed: sums per key under control, on a given cluster, until it is told to stop.

    python -m tests.spark.driver MASTER FOLDER

FOLDER holds the checkpoint, the journal and the results. A policy switches the alternate and moves all state to one
executor, once in its life: after a restart only the journal can know about it. SIGTERM ends it between two batches;
it then says in FOLDER/end.json how it stood.
"""

from __future__ import annotations

import json
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

from penstock import flow
from penstock.control import PolicyRun, Settings, SqliteJournal, desired_of
from penstock.dataflow import OperatorId, alternate
from penstock.dataflow.connectors import files_sink
from penstock.policies.actions import Move, Switch
from penstock.policies.policy import Proposal
from penstock.spark.internals.executors import Executors
from penstock.spark.internals.pacing import stop_cleanly
from penstock.spark.launch import controls_of, launch
from penstock.spark.pilot import Pilot
from penstock.spark.runtime import SparkRuntime
from penstock.spark.session import create_session
from penstock.telemetry import Snapshot
from tests.conftest import REPOSITORY
from tests.spark.control import WHY
from tests.spark.flows import keyed_sums, record_minus, replayed
from tests.spark.streams import last_source

SUMS, SIGN = OperatorId("sums"), OperatorId("sign")


class SwitchAndGather:
    """Switches to the second alternate, and moves all state partitions to the last executor; once."""

    name = "once"

    def start(self, options: None) -> int:
        return 0

    def decide(self, snapshot: Snapshot, memory: int, options: None) -> tuple[Proposal, int]:
        tasks, nodes = snapshot.tasks, snapshot.nodes
        mine = tasks.operator == snapshot.dataflow.row[SUMS]
        if memory or not mine.any() or (tasks.node[mine] < 0).any() or len(nodes) < 2:
            return Proposal(policy=self.name), memory
        target = max(range(len(nodes)), key=lambda n: nodes.hosts[n])
        moves = [
            Move(reason=WHY, operator=SUMS, index=int(i), source=nodes.ids[at], target=nodes.ids[target])
            for i, at in zip(tasks.index[mine], tasks.node[mine], strict=True)
            if at != target
        ]
        switch = Switch(reason=WHY, operator=SIGN, current="plus", target="minus")
        return Proposal(policy=self.name, actions=(switch, *moves)), 1


def main(master: str, folder: Path) -> None:
    """Run, going on with what the folder has, until SIGTERM."""
    conf = {
        "spark.driver.memory": "768m",
        "spark.executor.memory": "512m",
        "spark.executor.cores": "1",
        "spark.executorEnv.PYTHONPATH": str(REPOSITORY),
        "spark.locality.wait": "10s",
    }
    spark = create_session(master, "to-be-killed", extra_conf=conf)
    spark.sparkContext.setLogLevel("OFF")
    builder = flow("sums")
    signed = builder.source("in", replayed(200.0), keep_by="number").map(
        "sign",
        alternates=[alternate("plus", dict), alternate("minus", record_minus, value=0.5)],
        takes="record",
    )
    totals = signed.keyed(
        "sums", keyed_sums, key="key", state="count long, total long", schema="key long, count long, total long",
        takes="pandas",
    )  # fmt: skip
    totals.sink("out", files_sink(str(folder / "out"), "json"))
    resume, controls = None, {}
    with SqliteJournal(folder / "journal.sqlite") as journal:
        for run in journal.runs():
            latest = journal.latest(run.id)
            if latest is not None:
                resume, controls = run.id, controls_of(desired_of(latest))
    runtime = launch(
        spark, builder.build(), checkpoint=folder / "checkpoint", controls=controls, state_partitions=4
    )
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    pilot = Pilot(
        runtime,
        [PolicyRun(policy=SwitchAndGather())],
        settings=Settings(interval_s=1.0),
        journal=folder / "journal.sqlite",
        resume=resume,
    )
    with pilot:
        stop.wait()
        # Moves take a few micro-batches, long ones on a busy machine.
        patience_s = time.monotonic() + 90
        while len(set(hosts := _hosts(runtime))) > 1 and time.monotonic() < patience_s:
            time.sleep(0.5)
        end: dict[str, Any] = {"controls": dict(runtime.controls), "hosts": hosts}
    stop_cleanly(spark, runtime.query, timeout_s=120)
    end["read"] = last_source(runtime.query).end["next"]
    (folder / "end.json").write_text(json.dumps(end))
    spark.stop()


def _hosts(runtime: SparkRuntime) -> list[str | None]:
    """Where each state partition is."""
    hosts = {e.id: e.host for e in Executors(runtime.spark).list()}
    return [hosts.get(str(e)) for e in runtime.moves.places().values()]


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
