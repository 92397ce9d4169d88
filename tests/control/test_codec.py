"""What is stored comes back equal, and what does not fit is refused with its place."""

import math
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields, make_dataclass
from typing import Any, Literal, NewType, get_type_hints

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from penstock.control.codec import CodecError, from_json, pack, to_json, unpack
from penstock.control.plan import Plan, Planned, Withheld
from penstock.control.record import Fault
from penstock.dataflow import Dataflow, Function, flow
from penstock.dataflow.connectors import console, rate
from penstock.dataflow.graph import Connector
from penstock.policies.policy import Proposal
from penstock.policies.reasons import Reason
from penstock.telemetry import Snapshot, Tasks
from penstock.testing import a_dataflow, a_snapshot
from tests.control.strategies import some_proposals, the_snapshot

Name = NewType("Name", str)


@dataclass(frozen=True, slots=True, kw_only=True)
class Inner:
    size: float
    label: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    turn: int
    way: Literal["up", "down"]
    names: tuple[Name, ...]
    pair: tuple[int, str]
    by_name: Mapping[Name, Inner]
    by_pair: Mapping[tuple[int, str], float]
    maybe: Inner | None
    fact: str | int | float | bool | None
    loose: Any = None
    scratch: Any = field(default=None, compare=False)


finite = st.floats(allow_nan=False)
words = st.text(max_size=5)
wholes = st.integers(-(2**63), 2**63 - 1)
inners = st.builds(Inner, size=finite, label=st.none() | words)
memories = st.builds(
    Memory,
    turn=st.integers(-(2**60), 2**60),
    way=st.sampled_from(["up", "down"]),
    names=st.lists(words).map(tuple),
    pair=st.tuples(wholes, words),
    by_name=st.dictionaries(words, inners, max_size=3),
    by_pair=st.dictionaries(st.tuples(wholes, words), finite, max_size=3),
    maybe=st.none() | inners,
    fact=st.none() | words | wholes | finite | st.booleans(),
    loose=st.recursive(
        st.none() | words | wholes | finite | st.booleans(),
        lambda inner: st.lists(inner, max_size=3).map(tuple) | st.dictionaries(words, inner, max_size=3),
        max_leaves=5,
    ),
)


PLAIN: dict[str, Any] = {
    "turn": 1,
    "way": "up",
    "names": (),
    "pair": (1, ""),
    "by_name": {},
    "by_pair": {},
    "maybe": None,
    "fact": None,
}


@given(memories)
def test_a_value_comes_back_equal(memory: Memory) -> None:
    assert unpack(Memory, pack(Memory, memory)) == memory


@dataclass(frozen=True, slots=True, eq=False)
class Columns:
    first: np.ndarray
    second: np.ndarray


arrays = npst.arrays(
    st.sampled_from([np.float64, np.float32, np.int64, np.int32, np.bool_, "<U4", "M8[s]"]),
    npst.array_shapes(min_dims=1, max_dims=3, min_side=0, max_side=4),
)


@given(arrays, arrays)
def test_arrays_come_back_bit_for_bit(first: np.ndarray, second: np.ndarray) -> None:
    back = unpack(Columns, pack(Columns, Columns(first, second)))
    for was, now in ((first, back.first), (second, back.second)):
        assert (now.dtype, now.shape) == (was.dtype, was.shape)
        assert now.tobytes() == np.ascontiguousarray(was).tobytes()
        assert (now.flags.writeable, now.flags.aligned) == (True, True), "as compiled code knows it"


@given(some_proposals())
@settings(max_examples=50, deadline=None)
def test_plans_come_back_equal_with_the_right_kinds_of_action(proposals: tuple[Proposal, ...]) -> None:
    every = [(p.policy, action) for p in proposals for action in p.actions]
    plan = Plan(
        time_s=1.5,
        actions=tuple(Planned(action=a, policy=p) for p, a in every),
        withheld=tuple(
            Withheld(action=a, policy=p, reason=Reason(code="test", facts={"x": 1})) for p, a in every
        ),
        notices=tuple(n for p in proposals for n in p.notices),
    )
    assert unpack(Plan, pack(Plan, plan)) == plan


def test_numbers_of_numpy_are_plain_numbers() -> None:
    assert to_json(
        Reason, Reason(code="test", facts={"a": np.int64(3), "b": np.float64(0.5), "c": np.bool_(True)})
    ) == ('{"code":"test","facts":{"a":3,"b":0.5,"c":true}}')


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan])
def test_infinity_survives(value: float) -> None:
    back = unpack(Inner, pack(Inner, Inner(size=value))).size
    assert back == value or (math.isnan(back) and math.isnan(value))
    with pytest.raises(CodecError):
        to_json(Inner, Inner(size=value))  # JSON has neither


def test_a_snapshot_comes_back_with_every_column() -> None:
    snapshot = the_snapshot()
    back = unpack(Snapshot, pack(Snapshot, snapshot))
    assert back.dataflow == snapshot.dataflow
    assert (back.time_s, back.classes, back.nodes.ids) == (
        snapshot.time_s,
        snapshot.classes,
        snapshot.nodes.ids,
    )
    np.testing.assert_array_equal(back.tasks.service_s.m2, snapshot.tasks.service_s.m2)
    np.testing.assert_array_equal(back.by_operator.utilisation, snapshot.by_operator.utilisation)
    assert back.sinks.quantile_s(0, 0.5) == snapshot.sinks.quantile_s(0, 0.5)


def double(record: dict[str, Any]) -> dict[str, Any]:
    return record


def test_a_dataflow_comes_back_with_its_functions_by_name() -> None:
    builder = flow("named")
    builder.source("in", rate(rows_per_second=5)).map("double", double, takes="record").sink("out", console())
    dataflow = builder.build()
    back = unpack(Dataflow, pack(Dataflow, dataflow))
    assert back == dataflow
    assert back.operator("double").alternates[0].function == Function(path=f"{__name__}:double")


def test_a_lambda_is_known_to_be_lost() -> None:
    back = unpack(Function, pack(Function, Function(lambda x: x)))
    with pytest.raises(LookupError, match="not-stored"):
        back.resolve()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "truncated"),
        ("[]", "Expected `object`, got `array`"),
        ('{"size": "big"}', r"Expected `float`, got `str` - at `\$.size`"),
        ('{"size": true}', r"Expected `float`, got `bool` - at `\$.size`"),
        ('{"size": 1, "colour": 2}', "unknown field `colour`"),
        ("{}", "missing required field `size`"),
    ],
)
def test_what_does_not_fit_is_refused_with_its_place(text: str, message: str) -> None:
    with pytest.raises(CodecError, match=message):
        from_json(Inner, text)


def test_constructors_still_reject_nonsense() -> None:
    with pytest.raises(CodecError, match="to itself is no action"):
        from_json(
            Planned,
            '{"action": {"kind": "scale", "reason": {"code": "test"}, "current": 2, "target": 2}, "policy": "p"}',
        )


@given(st.integers(0, 200), st.integers(1, 255))
@settings(max_examples=60)
def test_damaged_bytes_are_refused_or_harmless(position: int, flip: int) -> None:
    """A flipped byte never gives anything but an error or a well-typed value."""
    data = bytearray(pack(Inner, Inner(size=1.0, label="something to store " * 5)))
    data[position % len(data)] ^= flip
    try:
        back = unpack(Inner, bytes(data))
    except CodecError:
        return
    assert isinstance(back.size, float)


def test_what_cannot_be_stored_says_so() -> None:
    with pytest.raises(CodecError, match=r"Memory\.loose: set is not one of"):
        pack(
            Memory,
            Memory(
                turn=1,
                way="up",
                names=(),
                pair=(1, ""),
                by_name={},
                by_pair={},
                maybe=None,
                fact=None,
                loose={1},
            ),
        )
    with pytest.raises(CodecError, match="cannot be stored"):
        pack(set, {1})
    with pytest.raises(CodecError, match="Python objects"):
        pack(Columns, Columns(np.array([object()]), np.zeros(1)))


def test_fields_outside_the_value_are_left_out() -> None:
    memory = Memory(**PLAIN, scratch={1})
    assert unpack(Memory, pack(Memory, memory)).scratch is None


def test_the_default_dataflow_is_small() -> None:
    assert len(pack(Snapshot, a_snapshot(a_dataflow()))) < 4000


def test_a_field_that_came_later_has_its_default() -> None:
    assert from_json(Inner, '{"size": 1.0}') == Inner(size=1.0)


def test_secrets_are_masked() -> None:
    login = 'org.apache.kafka.PlainLoginModule required username="ann" password="xyzzy";'
    options = {"kafka.sasl.jaas.config": login, "kafka.ssl.key.password": "xyzzy", "subscribe": "clicks"}
    connector = Connector(kind="kafka", options=options)
    stored = unpack(Connector, pack(Connector, connector))
    assert stored.options == {
        "kafka.sasl.jaas.config": "***",
        "kafka.ssl.key.password": "***",
        "subscribe": "clicks",
    }
    assert "xyzzy" not in repr(connector)
    assert "clicks" in repr(connector)
    fault = Fault.of("observe", RuntimeError(f"cannot log in: {login}"))
    refused = Reason(code="spark-refused", facts={"cause": f"no: {login}"})
    assert "xyzzy" not in fault.cause
    assert "xyzzy" not in str(unpack(Reason, pack(Reason, refused)))


def test_columns_that_came_later_hold_nothing() -> None:
    kept = [f for f in fields(Tasks) if f.default is MISSING]
    hints = get_type_hints(Tasks)
    earlier: Any = make_dataclass("Tasks", [(f.name, hints[f.name]) for f in kept], kw_only=True)
    tasks = a_snapshot().tasks
    assert len(tasks)
    stored = pack(earlier, earlier(**{f.name: getattr(tasks, f.name) for f in kept}))
    found = unpack(Tasks, stored)
    assert found.state_known.tolist() == [False] * len(tasks)
    assert found.busy_s.tolist() == tasks.busy_s.tolist()
