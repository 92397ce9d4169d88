"""Time of one loop cycle (snapshot -> plan -> journal) with a policy that does nothing.

    python benchmarks/loop.py [--tasks 100000] [--cycles 30] [--journal PATH]

Every cycle sees a snapshot nobody has looked at before, so that the brief is really computed. Prints one JSON
document; exit 1 if the 95th percentile at the largest size misses 50 ms.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path

from penstock.control import Loop, PolicyRun, Settings, SqliteJournal
from penstock.testing import FakeClock, RecordingRuntime, ScriptedPolicy, a_dataflow, a_snapshot

TARGET_MS = 50.0
OPERATORS = 20


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tasks", type=int, nargs="+", default=[100, 10_000, 100_000])
    parser.add_argument("--cycles", type=int, default=30)
    parser.add_argument("--journal", type=Path, help="where to write; default: a temporary file")
    given = parser.parse_args()
    results = [measure(tasks, given.cycles, given.journal) for tasks in sorted(given.tasks)]
    met = results[-1]["p95_ms"] < TARGET_MS
    print(json.dumps({"benchmark": "loop", "target_ms": TARGET_MS, "met": met, "sizes": results}, indent=2))
    return 0 if met else 1


def measure(tasks: int, cycles: int, journal_path: Path | None) -> dict[str, float]:
    each = tasks // OPERATORS
    dataflow = a_dataflow(*(f"op{i}" for i in range(OPERATORS)), parallelism=(1, max(each, 1)))
    clock = FakeClock()

    def world(time_s: float, _: object) -> object:
        return a_snapshot(dataflow, time_s=time_s, parallelism=each, nodes=max(1, tasks // 100))

    with tempfile.TemporaryDirectory() as folder:
        path = journal_path or Path(folder) / "journal.db"
        with SqliteJournal(path) as journal:
            made = [world(5.0 * i, None) for i in range(1, cycles + 2)]
            runtime = RecordingRuntime(clock, made)  # type: ignore[arg-type]
            policies = [PolicyRun(policy=ScriptedPolicy(()))]
            loop = Loop(runtime, policies, clock=clock, journal=journal, settings=Settings())
            loop.step()  # the first one begins the run
            times_ms = []
            for _ in range(cycles):
                began = time.perf_counter()
                cycle = loop.step()
                times_ms.append((time.perf_counter() - began) * 1e3)
                assert cycle.brief is not None
                assert cycle.brief.tasks == each * OPERATORS
            assert not loop.faults, loop.faults
            assert loop.run_id is not None
            written = sum(1 for _ in journal.cycles(loop.run_id))
            assert written == cycles + 1, f"{written} cycles in the journal, not {cycles + 1}"
            replayable = sum(1 for _ in journal.evidence(loop.run_id))
        size = path.stat().st_size
    times_ms.sort()
    return {
        "tasks": each * OPERATORS,
        "median_ms": round(statistics.median(times_ms), 2),
        "p95_ms": round(times_ms[int(0.95 * (len(times_ms) - 1))], 2),
        "max_ms": round(times_ms[-1], 2),
        "replayable_cycles": replayable,
        "bytes_per_cycle": round(size / (cycles + 1)),
    }


if __name__ == "__main__":
    sys.exit(main())
