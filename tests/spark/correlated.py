"""A chain of two keyed operators with the same key, in a module of its own: executors import it."""

import hashlib
from typing import Any

import pandas as pd

from penstock import flow
from penstock.dataflow import Dataflow
from penstock.dataflow.connectors import memory
from tests.spark.flows import replayed

KEYS = 300


def by_key(frame: pd.DataFrame) -> pd.DataFrame:
    return pd.DataFrame({"key": frame["number"] % KEYS})


def readings(key: tuple[int], rows: pd.DataFrame, state: tuple[int] | None) -> tuple[Any, Any]:
    """What was seen of the key so far, with a payload that does not compress."""
    seen = (state[0] if state else 0) + len(rows)
    payload = hashlib.shake_256(f"{key[0]}-{seen}".encode()).hexdigest(400)
    return pd.DataFrame({"key": [key[0]], "seen": [len(rows)], "payload": [payload]}), (seen,)


def totals(key: tuple[int], rows: pd.DataFrame, state: tuple[int] | None) -> tuple[Any, Any]:
    total = (state[0] if state else 0) + int(rows["seen"].sum())
    return pd.DataFrame({"key": [key[0]], "total": [total]}), (total,)


def correlated(table: str, rate_rps: float) -> Dataflow:
    """Partition i of the first operator sends to partition i of the second, and to no other."""
    builder = flow(table)
    numbers = builder.source("in", replayed(rate_rps)).map("key", by_key, takes="pandas", schema="key long")
    first = numbers.keyed(
        "readings",
        readings,
        key="key",
        state="seen long",
        schema="key long, seen long, payload string",
        takes="pandas",
    )
    second = first.keyed(
        "totals", totals, key="key", state="total long", schema="key long, total long", takes="pandas"
    )
    second.sink("out", memory(table))
    return builder.build()
