"""Columns and the shape of the graph: what is told, and what always holds of a valid dataflow."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.dataflow import Dataflow, Operator, Sequence, Stream, problems
from penstock.dataflow.columns import ColumnsError, column_names
from tests.dataflow.strategies import dataflows


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("id long", ("id",)),
        ("id: bigint, b STRING", ("id", "b")),
        ("a struct<x: int, y: array<map<string, double>>>, b decimal(10, 2) not null", ("a", "b")),
        ("`odd, name` string comment 'a, b', c date", ("odd, name", "c")),
    ],
)
def test_columns(text: str, names: tuple[str, ...]):
    assert column_names(text) == names


@pytest.mark.parametrize(
    "text", ["", "id", "id long,", "id lnog", "a long, A long", "a array<int", "a int)", "`a long"]
)
def test_bad_columns(text: str):
    with pytest.raises(ColumnsError):
        column_names(text)


@given(dataflow=dataflows())
@settings(max_examples=25)
def test_streams_point_forward_in_topological_order(dataflow: Dataflow):
    place = {id_: i for i, id_ in enumerate(dataflow.topological)}
    assert set(place) == {o.id for o in dataflow.operators}
    assert all(place[s.source] < place[s.target] for s in dataflow.streams)
    assert {s for o in dataflow.operators for s in dataflow.upstream(o.id)} == set(dataflow.streams)
    assert {s for o in dataflow.operators for s in dataflow.downstream(o.id)} == set(dataflow.streams)


@given(dataflow=dataflows(), data=st.data())
@settings(max_examples=25)
def test_a_stream_back_is_a_cycle(dataflow: Dataflow, data: st.DataObject):
    there = data.draw(st.sampled_from(dataflow.streams))
    back = Stream(source=there.target, target=there.source, wiring="spread")
    looped = dataclasses.replace(dataflow, streams=(*dataflow.streams, back))
    told = [p.message for p in problems(looped) if "cycle" in p.message]
    assert any(there.source in message and there.target in message for message in told)
    with pytest.raises(ValueError, match="cycle"):
        _ = looped.topological


@given(dataflow=dataflows(), data=st.data())
@settings(max_examples=25)
def test_a_missing_operator_is_told(dataflow: Dataflow, data: st.DataObject):
    gone = data.draw(st.sampled_from(dataflow.operators))
    left = tuple(o for o in dataflow.operators if o.id != gone.id)
    told = problems(dataclasses.replace(dataflow, operators=left))
    readers = [p for p in told if f"there is no operator '{gone.id}'" in p.message]
    assert len(readers) >= sum(gone.id in (s.source, s.target) for s in dataflow.streams)


def test_cycles_are_named_in_order():
    ids = ["a", "b", "c", "d"]
    edges = [("a", "b"), ("b", "c"), ("c", "b"), ("c", "d"), ("d", "d")]
    dataflow = Dataflow(
        name="f",
        operators=tuple(Operator(id=id_, kind="map") for id_ in ids),
        streams=tuple(Stream(source=a, target=b) for a, b in edges),
    )
    told = {p.message for p in problems(dataflow) if "cycle" in p.message}
    assert told == {"there is a cycle: b -> c -> b", "there is a cycle: d -> d"}


def test_a_long_chain_is_no_deep_recursion():
    count = 3000
    operators = tuple(Operator(id=f"m{i}", kind="map") for i in range(count))
    streams = tuple(Stream(source=f"m{i}", target=f"m{i + 1}") for i in range(count - 1))
    told = problems(Dataflow(name="f", operators=operators, streams=streams))
    assert {p.place for p in told} == {"operators", "operators.m0.inputs", f"operators.m{count - 1}"}


@pytest.mark.parametrize("text", ["", "->", "a -> -> b", "-> ->"])
def test_empty_sequences(text: str):
    with pytest.raises(ValueError, match="empty"):
        Sequence.parse(text)


@pytest.mark.parametrize("text", ["a", "a -> b", "-> a", "a ->", "-> a -> b-c -> d.e ->"])
def test_sequences_read_as_written(text: str):
    assert str(Sequence.parse(text)) == text
