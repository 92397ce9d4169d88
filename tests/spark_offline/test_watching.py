"""What executors use beside their operators, although batches end at different times."""

import pytest

from penstock.spark.observe.machine_load import HostSample
from penstock.spark.observe.machine_watch import BESIDE_S, HostWatch
from penstock.spark.observe.task_measures import OperatorRecord, TaskRecord


def task(end_s: float, busy_s: float, own_s: float | None, stalled_s: float = 0.0) -> TaskRecord:
    """A task that ended, with a look at the host if there was one."""
    work = OperatorRecord(operator="work", alternate="default", rows_in=10, rows_out=10, bytes_in=0, bytes_out=0,
                          calls=1, busy_s=busy_s, stalled_s=stalled_s, mean_s=busy_s / 10, m2=0.0)  # fmt: skip
    sample = None if own_s is None else HostSample(
        executor="1", time_s=end_s, machine="m", cpus=(0, 1), busy_s=own_s, own_s=own_s, load_average=0.0,
        net_in_bytes=0.0, net_out_bytes=0.0, memory_bytes=0.0, memory_used_bytes=0.0, own_memory_bytes=0.0,
    )  # fmt: skip
    return TaskRecord(run_id="r", batch_id=0, host="h", partition=0, attempt=0, task_id=0, stage_id=0, executor="1",
                      started_s=end_s - busy_s, ended_s=end_s, cpu_s=busy_s, operators=(work,),
                      sample=sample)  # fmt: skip


@pytest.mark.parametrize("batch_s", [1, 4])
def test_what_is_used_beside_operators_does_not_depend_on_the_length_of_batches(batch_s):
    watch = HostWatch()
    for second in range(0, 120, batch_s):
        # One core in all, of which operators have 0.7; they also waited for a CPU that others had.
        watch.note([task(second, (0.7 + 0.2) * batch_s, float(second), stalled_s=0.2 * batch_s)])
    assert watch.beside("1") == pytest.approx(0.3, abs=0.7 * batch_s / BESIDE_S)


def test_tasks_that_wait_for_answers_leave_nothing_beside_and_the_unknown_uses_nothing():
    watch = HostWatch()
    for second in range(60):
        watch.note([task(second, 0.9, 0.1 * second)])
    assert watch.beside("1") == 0
    assert watch.beside("2") == 0
