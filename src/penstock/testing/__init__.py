"""For tests of policies, runtimes and whole loops: hand-written twins of the ports, and builders with good defaults.

clock = FakeClock()
runtime = RecordingRuntime(clock, lambda time_s, desired: a_snapshot(time_s=time_s, latency_s=0.3))
loop = Loop(runtime, [PolicyRun(policy=MyPolicy())], clock=clock, journal=SqliteJournal(":memory:"))
loop.run(for_s=60)
assert [p.action.kind for plan in runtime.plans for p in plan.actions] == ["scale"]
"""

from penstock.testing.builders import a_dataflow, a_snapshot
from penstock.testing.twins import FakeClock, RecordingRuntime, ScriptedPolicy

__all__ = ["FakeClock", "RecordingRuntime", "ScriptedPolicy", "a_dataflow", "a_snapshot"]
