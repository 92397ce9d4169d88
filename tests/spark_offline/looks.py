"""A query on Kafka as its looks would show it, by a clock of the test's own: no Spark, no broker, no waiting."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from penstock.spark.internals.running import SourceStanding, Standing
from penstock.spark.observe.looks import EndOffsets, Look
from penstock.spark.observe.progress import BatchProgress

START_S = 1_700_000_000.0


def a_batch(
    number: int,
    began_s: float,
    *,
    start: Any = None,
    end: Any = None,
    latest: Any = None,
    records: int = 1,
    lasts_s: float = 0.5,
    asking_s: float = 0.01,
    **more: Any,
) -> BatchProgress:
    """A batch of one Kafka source."""
    source = {
        "description": "KafkaV2[Subscribe[topic]]",
        "startOffset": start,
        "endOffset": end,
        "latestOffset": latest if latest is not None else end,
        "numInputRows": records,
    }
    return BatchProgress.model_validate(
        {
            "batchId": number,
            "runId": "run",
            "timestamp": datetime.fromtimestamp(began_s, tz=UTC),
            "durationMs": {
                "triggerExecution": round(1e3 * lasts_s),
                "latestOffset": round(1e3 * asking_s),
                "addBatch": round(800 * lasts_s),
            },
            "numInputRows": records,
            "sources": [source],
            **more,
        }
    )


def offsets(total: float, partitions: int = 2) -> dict[str, dict[str, int]]:
    """`total` offsets, spread over the partitions of one topic."""
    each, rest = divmod(int(total), partitions)
    return {"topic": {str(p): each + (p < rest) for p in range(partitions)}}


def by_partition(told: dict[str, dict[str, int]]) -> dict[str, int]:
    return {f"{topic}-{p}": n for topic, parts in told.items() for p, n in parts.items()}


@dataclass
class FakeQuery:
    """Batches follow one another while there is data; each takes `takes_s(records)` and reads what there is.

    `came(t)` is the number of records written by the time t. The broker answers unless `broker` is False.
    """

    came: Callable[[float], float]
    takes_s: Callable[[float], float] = lambda records: 0.5
    broker: bool = True
    record_share: float = 1.0
    """Share of offsets that are records."""
    now_s: float = 0.0
    wall_steps_s: list[tuple[float, float]] = field(default_factory=list)
    """(time, by how much the driver's clock steps then)."""
    processed: float = 0.0
    batch: int = 0
    running: tuple[float, float, float] | None = None
    """(began, ends, offsets it reads up to)"""
    _ended: list[BatchProgress] = field(default_factory=list)

    def wall_s(self, time_s: float) -> float:
        return START_S + time_s + sum(by for at, by in self.wall_steps_s if at <= time_s)

    def _turn(self) -> bool:
        """Begin or end a batch if one is due before now."""
        if self.running is None:
            due = self.came(self.now_s)
            if due <= self.processed:
                return False
            self.running = self.now_s, self.now_s + self.takes_s(due - self.processed), due
        began_s, ends_s, end = self.running
        if ends_s > self.now_s:
            return False
        lasts_s = self.wall_s(ends_s) - self.wall_s(began_s)
        self._ended.append(
            a_batch(
                self.batch,
                self.wall_s(began_s),
                start=offsets(self.processed),
                end=offsets(end),
                records=round(self.record_share * (end - self.processed)),
                lasts_s=lasts_s,
            )
        )
        self.processed, self.running, self.batch = end, None, self.batch + 1
        return True

    def run_until(self, time_s: float, *, step_s: float = 0.05) -> None:
        while self.now_s < time_s - 1e-9:
            self.now_s = min(time_s, self.now_s + step_s)
            while self._turn():
                pass

    def reports(self) -> tuple[BatchProgress, ...]:
        """Those that ended since the last call."""
        taken, self._ended = tuple(self._ended), []
        return taken

    def standing(self) -> Standing:
        begun = self.running[0] if self.running is not None else self.now_s
        end = self.running[2] if self.running is not None else self.processed
        source = SourceStanding(
            kind="KafkaMicroBatchStream",
            description="KafkaV2[Subscribe[topic]]",
            limit="ReadAllAvailable",
            start=offsets(self.processed),
            end=offsets(end),
            latest=offsets(end),
        )
        return Standing(
            wall_s=self.wall_s(self.now_s),
            active=True,
            triggered=self.running is not None,
            planned=self.running is not None,
            batch=self.batch,
            triggered_wall_s=self.wall_s(begun),
            tasks=4 if self.running is not None else 0,
            tasks_ended=1 if self.running is not None else 0,
            sources=(source,),
        )

    def ends(self) -> dict[int, EndOffsets]:
        if not self.broker:
            return {}
        told = by_partition(offsets(self.came(self.now_s)))
        return {0: EndOffsets(time_s=START_S + self.now_s, offsets=told)}

    def look(self) -> Look:
        """A look with the times already in the loop's own."""
        running_s = self.now_s - self.running[0] if self.running is not None else 0.0
        return Look(
            time_s=START_S + self.now_s,
            run_id="run",
            batches=self.reports(),
            standing=self.standing(),
            running_s=running_s,
            ends=self.ends(),
        )
