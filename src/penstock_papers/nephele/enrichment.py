"""Enrichment: every record waits for an answer from elsewhere, as when each order is looked up in a remote service.

Waiting takes no CPU, so executors on one small machine add up as executors on machines of their own would: this is
the workload of the live elasticity benchmark and of the demo, which must run on a laptop.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import pyarrow as pa

from penstock.dataflow import Dataflow, Load, flow, staircase
from penstock.dataflow.connectors import discard, replay

LOOKUP_S = 0.004
WARM_UP_RPS = 40.0
STEPS_RPS = (80.0, 160.0, 260.0, 360.0, 450.0, 360.0, 260.0, 160.0)
"""Up and down in even steps, as PrimeTester's load; at `LOOKUP_S` one executor holds 160, two hold 360."""


def orders(start: int, stop: int) -> pa.RecordBatch:
    """Rows `start` to `stop`: an order and its customer."""
    ids = pa.array(range(start, stop), pa.int64())
    return pa.RecordBatch.from_arrays(
        [ids, pa.array([i % 997 for i in range(start, stop)], pa.int64())], names=["order", "customer"]
    )


class Lookup:
    """Stands for a call to a service that takes `seconds` for each record, one after the other."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The batch with the customer's region."""
        time.sleep(self._seconds * batch.num_rows)
        regions = [f"region {customer % 12}" for customer in batch.column("customer").to_pylist()]
        return batch.append_column("region", pa.array(regions, pa.string()))


def steps(
    rates_rps: Sequence[float] = STEPS_RPS, *, step_s: float = 20.0, warm_up_s: float = 40.0, cycles: int = 2
) -> Load:
    """A low rate while everything is cold, then the steps, `cycles` times."""
    return staircase(
        [(warm_up_s, WARM_UP_RPS), *[(step_s, rate) for _ in range(cycles) for rate in rates_rps]]
    )


def enrichment(
    *,
    load: Load | None = None,
    bound_ms: float = 8000.0,
    lookup_s: float = LOOKUP_S,
    parallelism: tuple[int, int] = (1, 3),
) -> Dataflow:
    """Orders, looked up, to a sink; the mean latency at the sink is bounded."""
    builder = flow("enrichment")
    incoming = builder.source(
        "orders",
        replay(generator=orders, load=load or steps(), schema="order long, customer long"),
        record_bytes=16,
        keep_by=("order",),
    )
    answered = incoming.map(
        "lookup",
        Lookup(lookup_s),
        schema="order long, customer long, region string",
        parallelism=parallelism,
        wiring="spread",
        cost_s=lookup_s,
        record_bytes=30,
    )
    answered.sink("results", discard())
    builder.constrain("-> lookup", mean_ms=bound_ms, window_s=5, name="lookup")
    return builder.build()
