"""Keyed programs and the messages between stages, without Spark."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from penstock.spark.observe.task_measures import TaskMeasures
from penstock.spark.query import keyed_runner
from penstock.spark.query.function_shipping import PackedFunctions
from penstock.spark.query.keyed_runner import KeyedProgram
from penstock.spark.query.shuffle_messages import (
    MESSAGES,
    Channel,
    bucket_count,
    bucket_labels,
    spark_hash,
    unpack,
)
from penstock.spark.query.state_codec import StateCodec, StateError
from penstock.spark.query.user_functions import ResultError
from tests.spark_offline.batches import SCHEMA, START_US, a_batch

SUMS = pa.schema(
    [("name", pa.string()), ("total", pa.int64()), ("source_time", pa.timestamp("us", tz="UTC"))]
)


def sums_of_records(key, rows, state):
    total = sum(r["n"] for r in rows) + (state[0] if state else 0)
    return [{"name": key[0], "total": total}], (total,)


def sums_of_frames(key, rows, state):
    total = int(rows["n"].sum()) + (state[0] if state else 0)
    return pd.DataFrame({"name": [key[0]], "total": [total]}), (np.int64(total),)


def sums_of_batches(key, rows, state):
    total = pc.sum(rows.column("n")).as_py() + (state[0] if state else 0)
    return pa.RecordBatch.from_pydict({"name": [key[0]], "total": [total]}), (total,)


def a_codec(declared="total long"):
    return StateCodec(operator="sums", declared=declared, width=1, buckets=24)


def a_keyed_program(function, takes, **changes):
    given = {
        "name": "sums",
        "operator": "sums",
        "takes": takes,
        "key": ("name",),
        "alternates": ("default",),
        "default": 0,
        "arriving": SCHEMA,
        "schema": SUMS,
        "codec": a_codec(),
        "arrives_at": 0,
        "leaves_by": 1,
        "functions": PackedFunctions.of([function, None]),
    }
    return KeyedProgram(**given | changes)


class TestShadows:
    """A keyed operator's other alternates run for some keys on the states before the batch, and change nothing."""

    def program(self, active, share, monkeypatch, score=None):
        def doubled(key, rows, state):
            total = 2 * sum(r["n"] for r in rows) + (state[0] if state else 0)
            return [{"name": key[0], "total": total}], (total,)

        controls = {"alternate:sums": active, "audit": share}
        monkeypatch.setattr(keyed_runner, "current_controls", lambda: controls)
        measures = TaskMeasures("sums")
        monkeypatch.setattr(keyed_runner, "task_measures", lambda name, accumulator: measures)
        functions = PackedFunctions.of([sums_of_records, doubled, score])
        program = a_keyed_program(
            sums_of_records, "record", alternates=("exact", "doubled"), functions=functions
        )
        return program, measures

    @pytest.mark.parametrize("active", ["exact", "doubled"])
    def test_results_and_states_are_those_of_the_active_one(self, active, monkeypatch):
        program, _ = self.program(active, 0.0, monkeypatch)
        plain = fold(program, [a_batch(40)])
        plain_again = fold(program, [a_batch(20, 40)], plain[1])
        program, measures = self.program(active, 1.0, monkeypatch)
        assert fold(program, [a_batch(40)]) == plain
        assert fold(program, [a_batch(20, 40)], plain[1]) == plain_again
        found = {o.alternate: o for o in measures.record().operators}
        assert found["doubled"].compared > 0
        assert found["doubled"].agreed < found["doubled"].compared, "its results differ"
        other = found["exact" if active == "doubled" else "doubled"]
        assert (other.rows_in, other.probe_rows) == (0, 60), "an audit is no work done"
        assert other.probe_s > 0

    def test_both_begin_with_the_state_before_the_batch(self, monkeypatch):
        """The second batch: the active one doubled the first, both go on from there."""
        first, second = ({}, {})
        for added, batch in ((first, a_batch(40)), (second, a_batch(20, 40))):
            for row in batch.to_pylist():
                added[row["name"]] = added.get(row["name"], 0) + row["n"]

        def as_they_should(best, output):
            totals = ({r["name"]: r["total"] for r in rows} for rows in (best, output))
            wanted = ({name: 2 * first[name] + way * n for name, n in second.items()} for way in (1, 2))
            return float(list(totals) == list(wanted))

        program, _ = self.program("doubled", 0.0, monkeypatch)
        _, state = fold(program, [a_batch(40)])
        program, measures = self.program("doubled", 1.0, monkeypatch, as_they_should)
        fold(program, [a_batch(20, 40)], state)
        found = {o.alternate: o for o in measures.record().operators}["doubled"]
        assert found.agreed == found.compared > 0


def fold(program, batches, stored=None):
    messages = [batch.serialize().to_pybytes() for batch in batches]
    out, state = program.fold(messages, stored, None, program.auditor(None))
    rows = [] if out is None else pa.ipc.read_record_batch(pa.py_buffer(out), program.schema).to_pylist()
    return sorted(rows, key=str), state


class TestKeyed:
    @pytest.mark.parametrize(
        ("function", "takes"),
        [(sums_of_records, "record"), (sums_of_frames, "pandas"), (sums_of_batches, "arrow")],
    )
    def test_state_goes_from_batch_to_batch(self, function, takes):
        program = a_keyed_program(function, takes)
        first, state = fold(program, [a_batch(3), a_batch(3, 3)])
        assert [(r["name"], r["total"]) for r in first] == [("x0", 3), ("x1", 5), ("x2", 7)]
        assert [int(r["source_time"].timestamp() * 1e6) for r in first] == [
            START_US + 1000 * n for n in (3, 4, 5)
        ]
        second, state = fold(program, [a_batch(1, 6)], state)
        assert [(r["name"], r["total"]) for r in second] == [("x0", 9)]
        states = program.codec.decode(state)
        assert states == {("x0",): (9,), ("x1",): (5,), ("x2",): (7,)}
        assert all(type(s[0]) is int for s in states.values())

    def test_rows_of_a_key_come_in_order_of_their_source_time(self):
        def look(key, rows, state):
            return None, ([r["n"] for r in rows],)

        batch = a_batch(9).take(pa.array([8, 3, 1, 0, 7, 6, 2, 5, 4]))
        codec = a_codec("seen array<long>")
        rows, state = fold(a_keyed_program(look, "record", codec=codec), [batch])
        assert rows == []
        assert codec.decode(state) == {("x0",): ([0, 3, 6],), ("x1",): ([1, 4, 7],), ("x2",): ([2, 5, 8],)}

    def test_none_forgets_the_key(self):
        _, state = fold(a_keyed_program(sums_of_records, "record"), [a_batch()])
        forget = a_keyed_program(lambda key, rows, state: (None, None), "record")
        assert fold(forget, [a_batch(1)], state)[1] is not None
        assert fold(forget, [a_batch()], state)[1] is None

    def test_keys_of_several_columns_with_nulls(self):
        schema = pa.schema([("a", pa.int64()), ("b", pa.string()), SCHEMA.field("source_time")])
        rows = [{"a": a, "b": b} for a in (1, None) for b in ("x", None) for _ in range(3)]
        codec = a_codec()
        program = a_keyed_program(
            lambda key, rows, state: (None, (len(rows),)),
            "record",
            key=("a", "b"),
            arriving=schema,
            codec=codec,
        )
        _, state = fold(program, [pa.RecordBatch.from_pylist(rows, schema=schema)])
        assert codec.decode(state) == {
            (1, "x"): (3,),
            (1, None): (3,),
            (None, "x"): (3,),
            (None, None): (3,),
        }

    def test_own_source_times_are_kept(self):
        def oldest(key, rows, state):
            return [{"name": key[0], "total": 0, "source_time": rows[0]["source_time"]}], (0,)

        rows, _ = fold(a_keyed_program(oldest, "record"), [a_batch(6)])
        assert [int(r["source_time"].timestamp() * 1e6) for r in rows] == [
            START_US + 1000 * n for n in range(3)
        ]

    def test_a_changed_state_is_refused(self):
        _, state = fold(a_keyed_program(sums_of_records, "record"), [a_batch()])
        other = a_keyed_program(sums_of_records, "record", codec=a_codec("total double"))
        with pytest.raises(StateError, match=r"'total long' in 24 buckets.*'total double'"):
            fold(other, [a_batch()], state)

    @pytest.mark.parametrize("state", [(1, 2), [1], 1])
    def test_a_wrong_state_is_told(self, state):
        with pytest.raises(ResultError, match="tuple of 1 values"):
            fold(a_keyed_program(lambda k, r, s: (None, state), "record"), [a_batch()])


class TestMessages:
    def test_packing_by_key_loses_nothing_and_keeps_keys_together(self):
        channel = Channel(number=3, schema=SCHEMA, buckets=24, key=("name",))
        names = [f"k{i % 97}" for i in range(1000)]
        batch = a_batch(1000).set_column(1, "name", pa.array(names))
        out = channel.pack(batch)
        assert out.schema == MESSAGES
        assert set(out.column("channel").to_pylist()) == {3}
        assert sorted(unpack(out.column("payload"), SCHEMA).column("n").to_pylist()) == list(range(1000))
        buckets: dict[str, set[int]] = {}
        for label, _, message in zip(*out.columns, strict=True):
            for name in unpack([message], SCHEMA).column("name").to_pylist():
                buckets.setdefault(name, set()).add(label.as_py())
        assert all(len(found) == 1 for found in buckets.values())
        assert len({next(iter(found)) for found in buckets.values()}) > 15

    def test_spreading_deals_out_over_all_parts(self):
        out = Channel(number=0, schema=SCHEMA, buckets=24, parts=4).pack(a_batch(4000))
        sizes = [unpack([message], SCHEMA).num_rows for message in out.column("payload")]
        assert sum(sizes) == 4000
        assert len(sizes) == 4
        # five standard deviations of a binomial
        assert max(abs(size - 1000) for size in sizes) < 5 * np.sqrt(4000 * 0.25 * 0.75)
        assert out.column("label").to_pylist() == bucket_labels(24)[:4].tolist()

    def test_a_spread_record_goes_to_its_part_whatever_came_before_it(self):
        channel = Channel(number=0, schema=SCHEMA, buckets=24, parts=4)

        def places(*batches):
            found = {}
            for batch in batches:
                for label, _, message in zip(*channel.pack(batch).columns, strict=True):
                    found |= dict.fromkeys(unpack([message], SCHEMA).column("n").to_pylist(), label.as_py())
            return found

        assert places(a_batch(200)) == places(a_batch(50, 150), a_batch(100, 50), a_batch(50))

    @pytest.mark.parametrize("partitions", [1, 2, 3, 4, 6, 8, 12, 24])
    def test_buckets_are_even_over_partitions(self, partitions):
        places = spark_hash(bucket_labels(24)) % partitions
        assert len(set(np.bincount(places, minlength=partitions))) == 1

    def test_labels_are_distinct(self):
        assert len(set(bucket_labels(840).tolist())) == 840

    @pytest.mark.parametrize(("partitions", "size", "count"), [(1, 0, 24), (16, 0, 48), (2, 1e9, 840)])
    def test_bucket_counts(self, partitions, size, count):
        assert bucket_count(partitions, size) == count
