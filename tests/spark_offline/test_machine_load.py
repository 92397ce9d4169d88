"""What executors and their hosts do: own and foreign load, limits, stale looks, time without a CPU."""

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from penstock.spark.observe import machine_load
from penstock.spark.observe.machine_load import (
    BESIDE_S,
    STALE_S,
    HostSample,
    HostWatch,
    cgroup_cores,
    network_interfaces,
    stalled_s,
    take_sample,
)
from penstock.spark.observe.task_measures import OperatorRecord, TaskRecord

BUSY = "import os; os.sched_setaffinity(0, {%d}); print('ready', flush=True)\nwhile True: pass"


def sample(executor: str, time_s: float, own_s: float, busy_s: float, **fields) -> HostSample:
    given = {"machine": "m", "cpus": (0, 1, 2, 3), "load_average": 0.0, "net_in_bytes": 0.0, "net_out_bytes": 0.0,
             "memory_bytes": 0.0, "memory_used_bytes": 0.0, "own_memory_bytes": 0.0}  # fmt: skip
    return HostSample(executor=executor, time_s=time_s, own_s=own_s, busy_s=busy_s, **(given | fields))


def task(
    end_s: float, busy_s: float = 0.0, look: HostSample | None = None, stalled_s: float = 0.0
) -> TaskRecord:
    """A task that ended, with a look at the host if there was one."""
    work = OperatorRecord(operator="work", alternate="default", rows_in=10, rows_out=10, bytes_in=0, bytes_out=0,
                          calls=1, busy_s=busy_s, stalled_s=stalled_s, mean_s=busy_s / 10, m2=0.0)  # fmt: skip
    executor = look.executor if look is not None else "1"
    return TaskRecord(run_id="r", batch_id=0, host="h", partition=0, attempt=0, task_id=0, stage_id=0,
                      executor=executor, started_s=end_s - busy_s, ended_s=end_s, cpu_s=busy_s, operators=(work,),
                      sample=look)  # fmt: skip


def watched(*looks: HostSample, at_s: float = 10.0) -> HostWatch:
    watch = HostWatch()
    watch.note([task(look.time_s, look=look) for look in looks], at_s)
    return watch


class TestLoads:
    def test_executors_of_one_host_are_not_foreign_to_each_other(self):
        looks = [sample("1", 0, 0, 0), sample("2", 0, 0, 0), sample("1", 10, 10, 25), sample("2", 10, 5, 25)]
        loads = watched(*looks).loads(10.0)
        assert loads["1"].own_cpu == pytest.approx(1.0)
        assert loads["1"].foreign_cpu == loads["2"].foreign_cpu == pytest.approx(1.0)
        assert loads["1"].cpus == 4

    def test_executors_on_other_cpus_or_machines_are_no_neighbours(self):
        looks = [
            sample("1", t, t, t, cpus=(0,)) for t in (0, 10)
        ] + [sample("2", t, t, t, cpus=(1,)) for t in (0, 10)]  # fmt: skip
        looks += [sample("3", t, t, t, machine="other") for t in (0, 10)]
        loads = watched(*looks).loads(10.0)
        assert [loads[e].foreign_cpu for e in "123"] == [0, 0, 0]

    def test_a_control_group_limits_what_can_be_used(self):
        load = watched(sample("1", 0, 0, 0), sample("1", 2, 1, 1, quota_cores=1.5)).loads(10.0)["1"]
        assert load.cpus == 1.5

    def test_looks_go_stale(self):
        watch = watched(sample("1", 0, 0, 0), sample("1", 10, 1, 1), at_s=10.0)
        assert set(watch.loads(10.0 + STALE_S)) == {"1"}
        assert not watch.loads(10.1 + STALE_S)

    def test_totals_that_begin_again_say_nothing(self):
        load = watched(sample("1", 0, 50, 50, net_in_bytes=9e9), sample("1", 10, 1, 60)).loads(10.0)["1"]
        assert (load.own_cpu, load.foreign_cpu, load.net_in_bytes_per_s) == (0, 1, 0)

    def test_a_clock_that_is_set_back_does_not_silence_a_host(self):
        watch = watched(sample("1", 990, 0, 0), sample("1", 1000, 1, 1))
        watch.note([task(100, look=sample("1", 100 + t, 1 + t, 1 + t)) for t in (0, 4)], 20.0)
        assert watch.loads(20.0)["1"].own_cpu == pytest.approx(1.0)

    def test_a_look_at_this_process(self):
        look = take_sample("1", machine_load.executor_process())
        assert look.own_s > 0
        assert set(look.cpus) <= set(range(os.cpu_count() or 1))
        assert look.own_memory_bytes <= look.memory_bytes


class TestLimits:
    def files(self, root: Path, texts: dict[str, str]) -> None:
        for name, text in texts.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text)

    @pytest.mark.parametrize(
        ("groups", "texts", "cores"),
        [
            ("0::/a/b", {"a/b/cpu.max": "max 100000", "a/cpu.max": "150000 100000"}, 1.5),
            ("0::/a/b", {"a/b/cpu.max": "50000 100000", "a/cpu.max": "150000 100000"}, 0.5),
            ("0::/a", {"a/cpu.max": "max 100000"}, None),
            ("0::/gone", {"cpu.max": "200000 100000"}, 2.0),
            (
                "4:memory:/x\n1:cpu,cpuacct:/y",
                {"cpu,cpuacct/y/cpu.cfs_quota_us": "25000", "cpu,cpuacct/y/cpu.cfs_period_us": "100000"},
                0.25,
            ),
            ("1:cpu:/", {"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, None),
        ],
    )
    def test_the_tightest_group_counts(self, tmp_path, groups, texts, cores):
        self.files(tmp_path / "proc", {"7/cgroup": groups})
        self.files(tmp_path / "cgroup", texts)
        assert cgroup_cores(7, tmp_path / "cgroup", tmp_path / "proc") == cores

    def test_a_process_that_is_gone_has_no_limit(self, tmp_path):
        assert cgroup_cores(7, tmp_path, tmp_path) is None

    def test_only_devices_that_are_up_count_and_tell_their_speed(self, tmp_path):
        self.files(tmp_path, {"eth0/device/x": "", "eth0/operstate": "up", "eth0/speed": "10000",
                              "eth1/device/x": "", "eth1/operstate": "down", "eth1/speed": "1000",
                              "docker0/operstate": "up", "lo/operstate": "unknown"})  # fmt: skip
        assert network_interfaces(tmp_path) == (("eth0",), 1.25e9)

    def test_a_device_that_does_not_tell_leaves_the_speed_unknown(self, tmp_path):
        self.files(tmp_path, {"eth0/device/x": "", "eth0/operstate": "up", "eth0/speed": "-1"})
        assert network_interfaces(tmp_path) == (("eth0",), None)

    def test_in_a_container_all_but_loopback_count_at_an_unknown_speed(self, tmp_path):
        self.files(tmp_path, {"eth0/operstate": "up", "eth0/speed": "10000", "lo/operstate": "unknown"})
        assert network_interfaces(tmp_path) == (("eth0",), None)
        assert network_interfaces(tmp_path / "nowhere") == ((), None)


class TestBeside:
    @pytest.mark.parametrize("batch_s", [1, 4])
    def test_what_is_used_beside_operators_does_not_depend_on_the_length_of_batches(self, batch_s):
        watch = HostWatch()
        for second in range(0, 120, batch_s):
            # One core in all, of which operators have 0.7; they also waited for a CPU that others had.
            look = sample("1", second, float(second), float(second))
            watch.note([task(second, (0.7 + 0.2) * batch_s, look, stalled_s=0.2 * batch_s)], second)
        assert watch.beside("1") == pytest.approx(0.3, abs=0.7 * batch_s / BESIDE_S)

    def test_tasks_that_wait_for_answers_leave_nothing_beside_and_the_unknown_uses_nothing(self):
        watch = HostWatch()
        for second in range(60):
            watch.note([task(second, 0.9, sample("1", second, 0.1 * second, 0.1 * second))], second)
        assert watch.beside("1") == 0
        assert watch.beside("2") == 0


class TestStalled:
    def test_a_thread_that_sleeps_is_not_stalled_and_one_that_shares_a_cpu_is(self, monkeypatch):
        if not os.path.exists(machine_load.SCHEDSTAT):
            pytest.skip("this system does not tell")
        cpu, found = min(os.sched_getaffinity(0)), {}

        def work() -> None:
            monkeypatch.setattr(machine_load, "_opened", None)  # as in a new worker: this thread's figures
            os.sched_setaffinity(0, {cpu})
            before = stalled_s()
            time.sleep(0.2)
            found["asleep"] = stalled_s() - before
            end_s = time.thread_time() + 0.2
            while time.thread_time() < end_s:
                pass
            found["at work"] = stalled_s() - before - found["asleep"]

        with subprocess.Popen([sys.executable, "-c", BUSY % cpu], stdout=subprocess.PIPE) as neighbour:
            try:
                assert neighbour.stdout is not None
                assert neighbour.stdout.readline().strip() == b"ready"
                thread = threading.Thread(target=work)
                thread.start()
                thread.join()
            finally:
                neighbour.kill()
        assert found["at work"] > 0.05  # two share the CPU evenly: 0.2 s, more or less
        assert found["asleep"] < 0.1

    def test_where_the_system_does_not_tell_there_is_none(self, monkeypatch):
        monkeypatch.setattr(machine_load, "SCHEDSTAT", "/nowhere")
        monkeypatch.setattr(machine_load, "_opened", None)
        assert stalled_s() == 0
