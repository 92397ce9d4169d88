"""Shedding by hash: the same records whatever the batch, nested, uniform, with the product of all shares on the way."""

import datetime as dt
from decimal import Decimal
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.policies.shedding import count, total
from penstock.spark.observe.utility_counts import Cutoffs, UtilityCounts
from penstock.spark.query.record_hash import column_hashes, record_hashes
from penstock.spark.query.sampling import WEIGHT, hashed, kept, unit_hashes, useless, with_sample

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


def sampled(batch: pa.RecordBatch, *shares: float, by: tuple[str, ...] = ()) -> pa.RecordBatch:
    """What several shedders in a row leave."""
    rows = hashed(with_sample(batch), by)
    for share in shares:
        rows = kept(rows, share)
    return rows


@pytest.mark.parametrize("by", [(), ("number",), ("user",), ("size",)])
def test_what_is_kept_is_nested_and_the_share_is_right(by):
    batch, before = a_batch(), set()
    for share in (0.0, 0.1, 0.4, 0.6, 0.95, 1.0):
        now = numbers(sampled(batch, share, by=by))
        assert before <= now
        # six standard deviations of a binomial; 5000 users of four records each decide together
        distinct = 5000 if by == ("user",) else ROWS
        assert abs(len(now) / ROWS - share) <= 6 * np.sqrt(share * (1 - share) / distinct)
        before = now


@settings(max_examples=40, deadline=None)
@given(st.lists(st.floats(0.05, 1.0), min_size=1, max_size=4), st.lists(st.integers(1, 1999), max_size=4))
def test_shares_multiply_and_boundaries_change_nothing(shares, cuts):
    """However many shedders and batches: u below the product, and 1/product is the weight."""
    batch, product = a_batch(2000), np.prod(shares)
    whole = sampled(batch, *shares, by=("number",))
    expected = np.flatnonzero(unit_hashes(batch, ["number"]) < product)
    assert whole.column("number").to_pylist() == expected.tolist()
    if product < 1:
        assert whole.column(WEIGHT).to_pylist() == pytest.approx([1 / product] * len(expected))
    edges = sorted({0, *cuts, 2000})
    parts = [sampled(batch.slice(a, b - a), *shares, by=("number",)) for a, b in pairwise(edges)]
    assert [n for part in parts for n in part.column("number").to_pylist()] == expected.tolist()


def test_both_sides_of_a_join_keep_the_same_keys():
    orders = pa.RecordBatch.from_pydict({"order": np.arange(ROWS), "amount": np.arange(ROWS) * 0.5})
    payments = pa.RecordBatch.from_pydict({"paid_for": np.arange(ROWS)[::-1], "method": ["card"] * ROWS})
    left = set(sampled(orders, 0.4, by=("order",)).column("order").to_pylist())
    right = set(sampled(payments, 0.4, by=("paid_for",)).column("paid_for").to_pylist())
    assert left == right
    assert len(left & right) / ROWS == pytest.approx(0.4, abs=6 * np.sqrt(0.24 / ROWS))
    assert set(sampled(payments, 0.5, 0.8, by=("paid_for",)).column("paid_for").to_pylist()) == left


def test_keys_are_kept_or_lost_as_a_whole():
    users = sampled(a_batch(), 0.5, by=("user",)).column("user").to_pylist()
    assert all(users.count(user) == 4 for user in set(users[:50]))


def test_other_columns_are_another_draw():
    """Kept by number, then by user: independent, and the weight says so."""
    rows = sampled(a_batch(), 0.5, by=("number",))
    twice = kept(hashed(rows, ("user",)), 0.5)
    assert twice.num_rows / ROWS == pytest.approx(0.25, abs=0.02)
    assert set(twice.column(WEIGHT).to_pylist()) == {4.0}
    again = kept(hashed(twice), 0.5)  # inherits the user's hash: one draw with what was before
    assert again.num_rows / ROWS == pytest.approx(0.125, abs=0.015)
    assert hashed(rows, ("number",)).equals(rows), "the same columns are the same draw"


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
    return np.where(batch.column("number").to_numpy() % 10 == 0, 0.95, 0.2)


def with_utility(batch: pa.RecordBatch, share: float, known: pa.RecordBatch | None = None) -> pa.RecordBatch:
    """What is kept when the driver knows the utilities of the records in `known`."""
    counts = UtilityCounts.of(useless(useful, batch if known is None else known))
    rows = hashed(with_sample(batch), ("number",))
    return kept(rows, np.minimum(1.0, counts.cutoff(share) / useless(useful, batch)))


@pytest.mark.parametrize("share", [0.02, 0.05, 0.1, 0.3, 0.8])
def test_with_a_utility_the_share_is_right_and_the_useful_go_last(share):
    left = with_utility(a_batch(), share).column("number").to_numpy()
    assert abs(len(left) / ROWS - share) < 6 * np.sqrt(share * (1 - share) / ROWS)
    useful_share = (left % 10 == 0).mean()
    assert useful_share > (0.25 if share < 0.3 else 0.12)


def test_with_a_utility_more_share_keeps_more():
    before: set[int] = set()
    for share in (0.05, 0.1, 0.2, 0.5, 0.9):
        now = numbers(with_utility(a_batch(), share))
        assert before <= now
        before = now


def test_with_a_utility_other_records_do_not_matter():
    """The cutoff comes from earlier batches; what else is in an Arrow batch changes no decision."""
    whole = numbers(with_utility(a_batch(1000, ROWS), 0.3, known=a_batch()))
    parts = [with_utility(a_batch(10, ROWS + start), 0.3, known=a_batch()) for start in range(0, 1000, 10)]
    assert set().union(*map(numbers, parts)) == whole


@settings(max_examples=60, deadline=None)
@given(st.lists(st.floats(0.0, 1.0), min_size=1, max_size=200), st.floats(0.01, 0.99))
def test_a_cutoff_keeps_its_share(utilities, share):
    w = np.clip(1 - np.array(utilities), 1e-6, 1.0)
    found = np.minimum(1.0, UtilityCounts.of(w).cutoff(share) / w).mean()
    assert found == pytest.approx(share, rel=0.1)


def test_cutoffs_follow_utilities_that_drift():
    cutoffs = Cutoffs.empty()
    for w in [0.2] * 10 + [0.8] * 100:
        cutoffs.learn([("orders", UtilityCounts.of(np.full(20_000, w)))])
    assert cutoffs.of({"orders": 0.5, "others": 0.5}) == {"orders": pytest.approx(0.4, rel=0.01)}
    assert cutoffs.of({"orders": 1.0}) == {}


@pytest.mark.parametrize("utility", [False, True], ids=["plain", "semantic"])
@pytest.mark.parametrize("share", [0.5, 0.1])
def test_weights_make_counts_and_sums_those_of_the_whole(share, utility):
    whole = a_batch()
    passed = with_utility(whole, share) if utility else sampled(whole, share, by=("number",))
    for some in (passed, kept(passed, 0.6)):
        weights = some.column(WEIGHT).to_numpy()
        for estimate, truth in (
            (count(weights, confidence=0.999), ROWS),
            (
                total(some.column("size").to_numpy(), weights, confidence=0.999),
                sum(whole.column("size").to_pylist()),
            ),
        ):
            assert estimate.low <= truth <= estimate.high
            assert estimate.high - estimate.low < 0.4 * truth


def test_the_column_a_user_asked_for_has_the_weight_too():
    batch = a_batch().append_column("mine", pa.array(np.ones(ROWS)))
    rows = kept(hashed(with_sample(batch), ignore=("mine",)), 0.25, weight="mine")
    assert numbers(rows) == numbers(sampled(a_batch(), 0.25)), "it is no part of the record"
    assert rows.column("mine").equals(rows.column(WEIGHT))
