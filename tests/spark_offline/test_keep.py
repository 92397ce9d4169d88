"""Shedding by hash: the same records whatever the batch, nested, uniform, independent of the depth above."""

import datetime as dt
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.policies.shedding import count, total
from penstock.spark.query.sampling import column_hashes, kept, record_hashes

ROWS = 20_000


def a_batch(rows: int = ROWS, start: int = 0) -> pa.RecordBatch:
    numbers = np.arange(start, start + rows)
    return pa.RecordBatch.from_pydict(
        {"number": numbers, "user": [f"user-{n % 5000}" for n in numbers], "size": numbers * 0.25}
    )


def numbers(batch: pa.RecordBatch) -> set[int]:
    return set(batch.column("number").to_pylist())


rows_of_anything = st.lists(
    st.fixed_dictionaries(
        {
            "i": st.none() | st.integers(-(2**63), 2**63 - 1),
            "s": st.none() | st.text(max_size=12),
            "b": st.none() | st.binary(max_size=12),
            "f": st.none() | st.floats(),
            "t": st.none() | st.booleans(),
            "l": st.none() | st.lists(st.none() | st.text(max_size=3), max_size=3),
            "d": st.none() | st.fixed_dictionaries({"x": st.none() | st.integers(0, 9)}),
        }
    ),
    min_size=1,
    max_size=30,
)
SCHEMA = pa.schema(
    [
        ("i", pa.int64()),
        ("s", pa.string()),
        ("b", pa.binary()),
        ("f", pa.float64()),
        ("t", pa.bool_()),
        ("l", pa.list_(pa.string())),
        ("d", pa.struct([("x", pa.int64())])),
    ]
)


@settings(max_examples=60, deadline=None)
@given(rows_of_anything, st.data())
def test_a_record_has_the_same_hash_wherever_it_stands(rows, data):
    whole = pa.RecordBatch.from_pylist(rows, schema=SCHEMA)
    hashes = record_hashes(whole)
    start = data.draw(st.integers(0, len(rows) - 1))
    stop = data.draw(st.integers(start + 1, len(rows)))
    order = data.draw(st.permutations(range(len(rows))))
    assert record_hashes(whole.slice(start, stop - start)).tolist() == hashes[start:stop].tolist()
    assert record_hashes(whole.take(pa.array(order))).tolist() == hashes[list(order)].tolist()


@settings(max_examples=60, deadline=None)
@given(rows_of_anything)
def test_different_records_have_different_hashes(rows):
    whole = pa.RecordBatch.from_pylist(rows, schema=SCHEMA)
    # 30 records in 2^64: a collision would be a fault, not chance
    distinct = {repr(row).replace("-0.0", "0.0") for row in whole.to_pylist()}
    assert len(set(record_hashes(whole).tolist())) == len(distinct)


@pytest.mark.parametrize("by", [(), ("number",), ("user",), ("size",)])
def test_what_is_kept_is_nested_and_the_share_is_right(by):
    batch, before = a_batch(), set()
    for share in (0.0, 0.1, 0.4, 0.6, 0.95, 1.0):
        now = numbers(kept(batch, share, by=by))
        assert before <= now
        # six standard deviations of a binomial; 5000 users of four records each decide together
        distinct = 5000 if by == ("user",) else ROWS
        assert abs(len(now) / ROWS - share) <= 6 * np.sqrt(share * (1 - share) / distinct)
        before = now
    assert kept(batch, 1.0) is batch


def test_batch_boundaries_and_order_change_nothing():
    whole = numbers(kept(a_batch(), 0.3))
    parts = [kept(a_batch(500, start), 0.3) for start in range(0, ROWS, 500)]
    assert set().union(*map(numbers, parts)) == whole


def test_keys_are_kept_or_lost_as_a_whole():
    users = kept(a_batch(), 0.5, by=("user",)).column("user").to_pylist()
    assert all(users.count(user) == 4 for user in set(users[:50]))


def test_another_depth_decides_independently():
    once = kept(a_batch(), 0.5, by=("number",), salt=1)
    twice = kept(once, 0.5, by=("number",), salt=2)
    assert abs(twice.num_rows / ROWS - 0.25) < 0.02
    assert kept(once, 0.5, by=("number",), salt=1).num_rows == once.num_rows


def test_columns_count_by_name_not_by_place():
    batch = a_batch(100)
    swapped = batch.select(["size", "number", "user"])
    assert record_hashes(batch).tolist() == record_hashes(swapped).tolist()
    assert (
        record_hashes(batch, ("user", "number")).tolist() == record_hashes(batch, ("number", "user")).tolist()
    )


def test_single_bits_of_the_hash_are_fair():
    hashes = column_hashes(pa.array(np.arange(ROWS)))
    ones = [int(((hashes >> np.uint64(bit)) & np.uint64(1)).sum()) for bit in range(64)]
    assert max(abs(n / ROWS - 0.5) for n in ones) < 6 * 0.5 / np.sqrt(ROWS)


@pytest.mark.parametrize(
    "values",
    [
        [dt.datetime(2024, 1, 1, tzinfo=dt.UTC), dt.datetime(2024, 1, 2, tzinfo=dt.UTC), None],
        [dt.date(2024, 1, 1), dt.date(2024, 1, 2), None],
        [Decimal("1.10"), Decimal("1.20"), None],
        [{"a": [1]}, {"a": [2]}, None],
    ],
)
def test_other_types_hash_too(values):
    assert len(set(column_hashes(pa.array(values)).tolist())) == 3


def test_dictionaries_hash_as_their_values():
    plain = pa.array(["a", "b", "a", None])
    assert column_hashes(plain.dictionary_encode()).tolist() == column_hashes(plain).tolist()


def useful(batch: pa.RecordBatch) -> np.ndarray:
    return np.where(batch.column("number").to_numpy() % 10 == 0, 1.0, 0.2)


@pytest.mark.parametrize("share", [0.02, 0.05, 0.1, 0.3, 0.8])
def test_with_a_utility_the_share_is_right_and_the_useful_go_last(share):
    left = kept(a_batch(), share, utility=useful).column("number").to_numpy()
    assert abs(len(left) / ROWS - share) < 6 * np.sqrt(share * (1 - share) / ROWS)
    best = (left % 10 == 0).sum()
    assert best == ROWS / 10 if share >= 0.1 else best == len(left)


def test_with_a_utility_more_share_keeps_more():
    before: set[int] = set()
    for share in (0.05, 0.1, 0.2, 0.5, 0.9):
        now = numbers(kept(a_batch(), share, utility=useful))
        assert before <= now
        before = now


def rather_useful(batch: pa.RecordBatch) -> np.ndarray:
    """Leaves every record a chance, as an estimate needs: of utility 1 alone there may be as many as are kept."""
    return np.minimum(useful(batch), 0.8)


@pytest.mark.parametrize("utility", [None, rather_useful], ids=["plain", "semantic"])
@pytest.mark.parametrize("share", [0.5, 0.1])
def test_weights_make_counts_and_sums_those_of_the_whole(share, utility):
    whole = a_batch()
    weighed = whole.append_column("weight", pa.array(np.ones(ROWS)))
    passed = kept(weighed, share, utility=utility, weight="weight")
    # The same records as without weights: the weight is not part of what is hashed.
    assert numbers(passed) == numbers(kept(whole, share, utility=utility))
    twice = kept(passed, 0.6, salt=1, weight="weight")
    for some in (passed, twice):
        keep = 1 / some.column("weight").to_numpy()
        for estimate, truth in (
            (count(keep), ROWS),
            (total(some.column("size").to_numpy(), keep), sum(whole.column("size").to_pylist())),
        ):
            low, high = estimate.interval(0.999)
            assert low <= truth <= high
            assert high - low < 0.25 * truth
