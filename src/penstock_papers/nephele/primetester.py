"""PrimeTester: random numbers, tested for probable primality at a rate that climbs and falls in steps.

The application of Nephele's trials (`nephele.txt`, sections III-A and V-A): source -> tester -> sink, all spread
round robin; a warm-up, an increment phase, a plateau and a decrement phase of 60 s steps.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import pyarrow as pa

from penstock.dataflow import Dataflow, Load, flow, staircase
from penstock.dataflow.connectors import discard, replay

NUMBER_BYTES = 64
"""512-bit numbers: one Miller-Rabin round costs a fraction of a millisecond in CPython."""
ROUNDS = 20
"""Composites fall out in the first round almost surely; a prime stands all of them (error below 4^-20)."""
PAPER_STEPS_RPS = (
    10_000,
    20_000,
    30_000,
    40_000,
    50_000,
    60_000,
    60_000,
    50_000,
    40_000,
    30_000,
    20_000,
    10_000,
)


def random_numbers(start: int, stop: int) -> pa.RecordBatch:
    """Rows `start` to `stop`: an id and a 512-bit odd number that depends on the id alone."""
    ids = range(start, stop)
    numbers = [hashlib.blake2b(i.to_bytes(8, "big"), digest_size=NUMBER_BYTES).digest() for i in ids]
    odd = [n[:-1] + bytes([n[-1] | 1]) for n in numbers]
    return pa.RecordBatch.from_arrays(
        [pa.array(ids, pa.int64()), pa.array(odd, pa.binary())], names=["id", "number"]
    )


def is_probable_prime(number: int, rounds: int = ROUNDS) -> bool:
    """Miller-Rabin with bases derived from the number itself, so that the answer is repeatable.

    >>> [n for n in range(2, 30) if is_probable_prime(n)]
    [2, 3, 5, 7, 11, 13, 17, 19, 23, 29]
    """
    if number < 4:
        return number > 1
    if number % 2 == 0:
        return False
    twos = ((number - 1) & -(number - 1)).bit_length() - 1
    odd = (number - 1) >> twos
    seed = number.to_bytes((number.bit_length() + 7) // 8, "big")
    for i in range(rounds):
        digest = hashlib.blake2b(seed, digest_size=32, salt=i.to_bytes(8, "big")).digest()
        x = pow(int.from_bytes(digest, "big") % (number - 3) + 2, odd, number)
        if x in (1, number - 1):
            continue
        for _ in range(twos - 1):
            x = x * x % number
            if x == number - 1:
                break
        else:
            return False
    return True


def with_primality(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The batch with a column `prime`. No trial division comes first: every number costs a real test."""
    numbers = (int.from_bytes(n, "big") for n in batch.column("number").to_pylist())
    return batch.append_column("prime", pa.array([is_probable_prime(n) for n in numbers], pa.bool_()))


def steps_up_and_down(
    rates_rps: Sequence[float] = PAPER_STEPS_RPS, *, step_s: float = 60.0, repeat: bool = False
) -> Load:
    """The trial's load: one step of `step_s` at each rate."""
    return staircase([(step_s, rate) for rate in rates_rps], repeat=repeat)


def primetester(
    *,
    load: Load | None = None,
    bound_ms: float = 20.0,
    testers: tuple[int, int] = (1, 520),
    cost_s: float = 0.0027,
) -> Dataflow:
    """The dataflow; by default the paper's load, bound and parallelism."""
    primes = flow("primetester")
    numbers = primes.source(
        "numbers",
        replay(
            generator=random_numbers,
            load=load if load is not None else steps_up_and_down(),
            schema="id long, number binary",
        ),
        record_bytes=80,
        keep_by=("id",),
    )
    tested = numbers.map(
        "tester",
        with_primality,
        schema="id long, number binary, prime boolean",
        parallelism=testers,
        wiring="spread",
        cost_s=cost_s,
        cost_cv=0.5,
        record_bytes=81,
    )
    tested.wired("spread").sink("results", discard())
    primes.constrain("-> tester", mean_ms=bound_ms, window_s=5, name="tester")
    return primes.build()
