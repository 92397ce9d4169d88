"""KNN: every point is classified by its nearest neighbours among the last points of its part, and then joins them.

The second application of `quality-of-data.txt` (section 7): one CPU-heavy task per part of the input. The reservoir
slides: the oldest point goes when a new one comes. Distances are computed to every point in it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from penstock.arrays import Floats
from penstock.dataflow import Connector, Dataflow, Load, constant, flow
from penstock.dataflow.connectors import discard, replay
from penstock_papers.common.chance import chance, choice

DIMENSIONS = 4
CLASSES = 5
POINT = "id long, part long, label long, " + ", ".join(f"x{d} double" for d in range(DIMENSIONS))
GUESS = "id long, part long, label long, guess long, distance double"
STATE = "labels array<long>, points array<double>"

State = tuple[list[int], list[float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Points:
    """A generator of points around the centres of `CLASSES` classes, dealt to parts in turn."""

    parts: int = 1
    spread: float = 0.35

    def __call__(self, start: int, stop: int) -> pa.RecordBatch:
        """Points number `start` to `stop`."""
        ids = np.arange(start, stop, dtype=np.int64)
        labels = choice(ids, 1, CLASSES)
        columns = {
            f"x{d}": chance(labels, 10 + d) + self.spread * (chance(ids, 20 + d) - 0.5)
            for d in range(DIMENSIONS)
        }
        return pa.RecordBatch.from_pydict({"id": ids, "part": ids % self.parts, "label": labels, **columns})


@dataclass(frozen=True, slots=True, kw_only=True)
class Neighbours:
    """Classifies the points of one part, in order of their numbers; state: the reservoir, oldest first."""

    k: int = 5
    reservoir: int = 500

    def __call__(
        self, key: tuple[int], rows: pa.RecordBatch, state: State | None
    ) -> tuple[pa.RecordBatch, State]:
        """(a guess and the distance of the farthest neighbour counted, for each point, the state)."""
        rows = rows.sort_by("id") if rows.num_rows else rows
        labels, points = state if state is not None else ([], [])
        known = np.array(points, np.float64).reshape(-1, DIMENSIONS)
        names = np.array(labels, np.int64)
        new = np.stack([rows.column(f"x{d}").to_numpy() for d in range(DIMENSIONS)], axis=1)
        theirs = rows.column("label").to_numpy()
        every, every_name = np.concatenate([known, new]), np.concatenate([names, theirs])
        guesses, distances = [], []
        for i in range(len(new)):
            end = len(known) + i
            begin = max(0, end - self.reservoir)
            guess, distance = nearest(every[begin:end], every_name[begin:end], new[i], self.k)
            guesses.append(guess)
            distances.append(distance)
        found = pa.RecordBatch.from_pydict(
            {
                "id": rows.column("id"),
                "part": rows.column("part"),
                "label": rows.column("label"),
                "guess": pa.array(guesses, pa.int64()),
                "distance": pa.array(distances, pa.float64()),
            }
        )
        kept, kept_names = every[-self.reservoir :], every_name[-self.reservoir :]
        return found, (kept_names.tolist(), kept.ravel().tolist())


def nearest(points: Floats, labels: NDArray[np.int64], point: Floats, k: int) -> tuple[int | None, float]:
    """The most frequent class (the smallest of equals) of the `k` nearest points, and how far the last of them is.

    >>> nearest(np.array([[0.0], [1.0], [5.0]]), np.array([2, 2, 1]), np.array([0.4]), 2)
    (2, 0.6)
    """
    if not len(points):
        return None, 0.0
    squares = ((points - point) ** 2).sum(axis=1)
    order = np.argsort(squares, kind="stable")[:k]
    return int(np.bincount(labels[order]).argmax()), float(np.sqrt(squares[order[-1]]))


def knn(
    *,
    load: Load | None = None,
    tasks: int = 1,
    priority: int = 0,
    min_accuracy: float = 0.2,
    k: int = 5,
    reservoir: int = 500,
    sink: Connector | None = None,
    cost_s: float = 1e-3,
    max_rows_per_batch: int | None = None,
) -> Dataflow:
    """The dataflow; `tasks` parts of the input, each with a reservoir of its own."""
    app = flow("knn")
    points = app.source(
        "points",
        replay(
            generator=Points(parts=tasks),
            load=load if load is not None else constant(200.0),
            schema=POINT,
            max_rows_per_batch=max_rows_per_batch,
        ),
        parallelism=tasks,
        cost_s=cost_s / 50,
        record_bytes=56,
        keep_by=("id",),
    )
    guesses = points.keyed(
        "neighbours",
        Neighbours(k=k, reservoir=reservoir),
        key="part",
        state=STATE,
        schema=GUESS,
        parallelism=tasks,
        cost_s=cost_s,
        cost_cv=0.2,
        record_bytes=40,
    )
    guesses.sink(
        "guesses",
        discard() if sink is None else sink,
        parallelism=tasks,
        priority=priority,
        min_accuracy=min_accuracy,
    )
    return app.build()
