"""At most so many CPUs for a process and all it starts, by a control group of Linux.

So three workers can be three machines on a computer with two processors: each computes at its own speed, whatever the
others do. Needs the right to make control groups, which root has.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

from penstock.errors import UserError

ROOT = Path("/sys/fs/cgroup")
PERIOD_US = 20_000
"""Short, so that a group that has used up its share waits milliseconds and not a tenth of a second."""


class CpuLimitError(UserError, OSError):
    """Control groups cannot be made here."""


class CpuLimit:
    """A control group; processes that are added share its CPUs with their children."""

    def __init__(self, name: str, cpus: float) -> None:
        quota = max(1_000, round(cpus * PERIOD_US))
        one_tree = (ROOT / "cgroup.controllers").exists()
        self._folder = ROOT / name if one_tree else ROOT / "cpu" / _own_group() / name
        try:
            if one_tree:
                (ROOT / "cgroup.subtree_control").write_text("+cpu")
            self._folder.mkdir(exist_ok=True)  # of a supervisor that was killed
            if one_tree:
                (self._folder / "cpu.max").write_text(f"{quota} {PERIOD_US}")
            else:
                (self._folder / "cpu.cfs_period_us").write_text(str(PERIOD_US))
                (self._folder / "cpu.cfs_quota_us").write_text(str(quota))
        except OSError as error:
            raise CpuLimitError(f"a limit of CPUs needs control groups, and {error}") from error

    def add(self, pid: int) -> None:
        """From now on this process and what it starts are limited."""
        (self._folder / "cgroup.procs").write_text(str(pid))

    def close(self) -> None:
        """Remove the group; its processes have ended."""
        with contextlib.suppress(OSError):
            self._folder.rmdir()


def _own_group() -> str:
    """The group of this process for CPUs, below which a limit is made: what limits us limits it too."""
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, group = line.split(":", 2)
        if "cpu" in controllers.split(","):
            return group.lstrip("/")
    return ""
