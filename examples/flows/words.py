"""The functions of `words.yaml`: lines made by number, cut into words, counted."""

import pyarrow as pa

TEXT = (
    "the gate decides how much water reaches the turbine",
    "too little and the lights go out",
    "too much and the river takes the mill",
)


def lines(start: int, stop: int) -> pa.RecordBatch:
    """Lines `start` to `stop`, the same each time they are asked for."""
    numbers = range(start, stop)
    return pa.RecordBatch.from_pydict({"number": [*numbers], "line": [TEXT[n % len(TEXT)] for n in numbers]})


def split(record: dict) -> list[dict]:
    """One record for each word of a line."""
    return [{"word": word} for word in record["line"].split()]


def count(key: tuple, rows: list[dict], state: tuple | None) -> tuple[list[dict], tuple]:
    """The word with how often it has come so far."""
    total = len(rows) + (state[0] if state else 0)
    return [{"word": key[0], "total": total}], (total,)
