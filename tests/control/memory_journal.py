"""A twin of the journal for tests: no file, run ids that can be foretold, and writes that fail on demand."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from penstock.control import Cycle, Evidence, Latest, Run


class MemoryJournal:
    """A journal that forgets when the process ends. Set `broken` to an exception to have every write fail."""

    def __init__(self) -> None:
        self.broken: Exception | None = None
        self._runs: dict[str, Run] = {}
        self._cycles: dict[str, list[Cycle]] = {}
        self._evidence: dict[str, list[Evidence]] = {}
        self._latest: dict[str, Latest] = {}

    def begin(self, *, dataflow: str, settings: str, options: Mapping[str, str]) -> Run:
        """A new run, called by its dataflow and a number."""
        self._check()
        id_ = f"{dataflow}-{len(self._runs) + 1}"
        run = Run(
            id=id_,
            dataflow=dataflow,
            started_unix=float(len(self._runs)),
            version="test",
            settings=settings,
            options=dict(options),
        )
        self._runs[id_], self._cycles[id_], self._evidence[id_] = run, [], []
        return run

    def append(self, run: str, cycle: Cycle, latest: Latest, evidence: Evidence | None) -> None:
        """Keep a cycle."""
        self._check()
        self._cycles[run].append(cycle)
        self._latest[run] = latest
        if evidence is not None:
            self._evidence[run].append(evidence)

    def runs(self) -> tuple[Run, ...]:
        """All runs, oldest first."""
        return tuple(self._runs.values())

    def cycles(self, run: str) -> Iterator[Cycle]:
        """The cycles of a run, oldest first."""
        return iter(tuple(self._cycles.get(run, ())))

    def evidence(self, run: str) -> Iterator[Evidence]:
        """What went into the cycles, oldest first."""
        return iter(tuple(self._evidence.get(run, ())))

    def latest(self, run: str) -> Latest | None:
        """Where the run stands."""
        return self._latest.get(run)

    def _check(self) -> None:
        if self.broken is not None:
            raise self.broken
