"""How long this thread could have run and had no CPU: what others cost it."""

from __future__ import annotations

import os

SCHEDSTAT = "/proc/thread-self/schedstat"
"""Linux: nanoseconds on a CPU, nanoseconds waiting for one, number of turns."""

_opened: tuple[int, int] | None = None


def stalled_s() -> float:
    """Seconds, since this thread began, that it waited for a CPU; always 0 where the system does not tell.

    A task on Spark holds its core from its beginning to its end, also while it waits for an answer from elsewhere.
    Held time less this is what it would hold on a machine of its own. Costs 1.5 µs.
    """
    global _opened  # a worker is forked from a process that may have asked before
    try:
        if _opened is None or _opened[0] != os.getpid():
            _opened = os.getpid(), os.open(SCHEDSTAT, os.O_RDONLY)
        return int(os.pread(_opened[1], 100, 0).split()[1]) / 1e9
    except (OSError, IndexError, ValueError):
        return 0.0
