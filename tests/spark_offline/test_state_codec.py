"""State as bytes: plain values come back as they were, earlier checkpoints are read, and no code of a stranger runs."""

import datetime as dt
import os
import pickle
from collections import Counter
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.spark.query.state_codec import StateCodec, StateError
from penstock.spark.query.user_functions import ResultError

NOW = dt.datetime(2024, 5, 1, 12, tzinfo=dt.UTC)


def a_codec(buckets: int = 24) -> StateCodec:
    return StateCodec(operator="sums", declared="n long", width=1, buckets=buckets)


plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary()
    | st.dates() | st.datetimes(timezones=st.sampled_from([None, dt.UTC, ZoneInfo("Europe/Berlin")]))
    | st.decimals(allow_nan=False) | st.uuids() | st.timedeltas(),
    lambda inner: st.lists(inner, max_size=3) | st.tuples(inner, inner)
    | st.dictionaries(st.text(max_size=3) | st.tuples(st.integers(0, 9), st.integers(0, 9)), inner, max_size=3),
    max_leaves=8,
)  # fmt: skip


@settings(deadline=None)
@given(st.dictionaries(st.tuples(st.none() | st.text(max_size=5)), st.tuples(plain), max_size=4))
def test_plain_values_come_back_as_they_were(states):
    back = a_codec().decode(a_codec().encode(states))
    assert back == states
    assert repr(back) == repr(states), "the same types"


@pytest.mark.parametrize(
    "value", [np.arange(5.0), np.float32(1.5), pd.Timestamp(NOW), np.array([["a", 1]], object), {1, 2}]
)
@pytest.mark.parametrize("old", [False, True])
def test_arrays_and_moments_too(value, old):
    states = {("a",): (value,)}
    stored = pickle.dumps((24, "n long", states), protocol=5) if old else a_codec().encode(states)
    (found,) = a_codec().decode(stored)["a",]
    assert type(found) is type(value)
    assert np.array_equal(found, value) if isinstance(value, np.ndarray) else found == value


@pytest.mark.parametrize("value", [print, Counter("aab"), os, a_codec(), object(), StateCodec])
def test_what_is_no_plain_value_is_told_when_it_is_written(value):
    with pytest.raises(
        (ResultError, TypeError), match=r"state must be made of numbers|cannot pickle 'module'"
    ):
        a_codec().encode({("a",): ({"in": [value]},)})


class Hostile:
    def __init__(self, *call):
        self._call = call

    def __reduce__(self):
        return self._call[0], self._call[1:]


@pytest.mark.parametrize(
    ("hostile", "named"),
    [
        (Hostile(exec, "raise SystemExit('a stranger ran this')"), "builtins.exec"),
        (Hostile(os.system, "false"), "posix.system"),
        (Hostile(getattr, ZoneInfo, "no_cache"), "no_cache"),
        (Hostile(pickle.loads, b"."), "loads"),
    ],
)
def test_a_pickle_that_would_run_code_is_refused(hostile, named):
    stored = pickle.dumps((24, "n long", {("a",): (hostile,)}))
    with pytest.raises(StateError, match=named):
        a_codec().decode(stored)


def test_state_that_is_declared_otherwise_now_is_refused():
    stored = a_codec().encode({("a",): (1,)})
    with pytest.raises(StateError, match=r"'n long' in 24 buckets.*'n long' in 48"):
        a_codec(48).decode(stored)
