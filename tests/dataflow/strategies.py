"""Random dataflows that are valid, for property tests of this and of other layers."""

from __future__ import annotations

import itertools
import string
from typing import get_args

from hypothesis import strategies as st

from penstock.dataflow import Dataflow, Load, alternate, flow
from penstock.dataflow.builder import FlowBuilder, Output
from penstock.dataflow.connectors import (
    console,
    discard,
    files,
    files_sink,
    foreach_batch,
    kafka,
    kafka_sink,
    memory,
    rate,
    replay,
)
from penstock.dataflow.graph import CHEAPEST_FIRST, STATISTICS, Alternate, Connector, State, Takes

ids = st.sampled_from(["a", "B", "c-d", "d.e", "no", "null", "e1", "_"])
texts = st.text(
    st.characters(blacklist_categories=("Cs", "Cc"), blacklist_characters="\ufffe\uffff"),
    min_size=1,
    max_size=12,
).filter(str.strip)
paths = st.builds(
    "{}:{}".format, st.sampled_from(["m", "pkg.mod", "_x.y.z"]), st.sampled_from(["f", "C.g", "on"])
)
seconds = st.floats(0, 1e3)
sizes = st.floats(0, 1e9)
shares = st.floats(0, 1)
schemas = st.sampled_from(["k string, v double", "K string, when timestamp, tags array<string>", "k long"])
parallelisms = st.tuples(st.integers(1, 50), st.integers(0, 50), shares).map(
    lambda drawn: (drawn[0], drawn[0] + drawn[1], drawn[0] + round(drawn[2] * drawn[1]))
)


@st.composite
def loads(draw: st.DrawFn) -> Load:
    steps = draw(st.lists(st.floats(0.001, 1e4), max_size=5))
    times = [0.0]
    for step in steps:
        times.append(times[-1] + step)
    rates = draw(st.lists(st.floats(0, 1e6), min_size=len(times), max_size=len(times)))
    period = draw(st.none() | st.floats(0.001, 1e4).map(lambda extra: times[-1] + extra))
    return Load(tuple(times), tuple(rates), period)


def alternates_lists() -> st.SearchStrategy[list[Alternate]]:
    one = st.builds(
        alternate,
        ids,
        st.none() | paths,
        value=st.floats(0, 1, exclude_min=True),
        cost_s=seconds,
        cost_cv=st.floats(0, 10),
        selectivity=st.floats(0, 100),
    )
    return st.lists(one, min_size=1, max_size=3, unique_by=lambda each: each.name)


def sources() -> st.SearchStrategy[Connector]:
    return st.one_of(
        st.builds(replay, path=texts, load=loads(), schema=st.none() | schemas),
        st.builds(
            replay,
            generator=paths,
            load=loads(),
            schema=schemas,
            loop=st.booleans(),
            time_column=st.just("k"),
            partitions=st.integers(1, 9),
        ),
        st.builds(kafka, topic=texts, servers=texts, value_format=st.just("json"), schema=schemas),
        st.builds(
            kafka, topic=texts, servers=texts, kafka_options=st.just({"kafka.security.protocol": "SSL"})
        ),
        st.builds(files, path=texts, format=st.just("json"), schema=schemas, load=st.none() | loads()),
        st.builds(rate, st.floats(0.1, 1e5)),
    )


def sinks() -> st.SearchStrategy[Connector]:
    return st.one_of(
        st.just(discard()),
        st.builds(console, rows=st.integers(1, 99), truncate=st.booleans()),
        st.builds(memory, texts),
        st.builds(files_sink, texts),
        st.builds(kafka_sink, texts, texts),
        st.builds(foreach_batch, paths),
    )


@st.composite
def dataflows(draw: st.DrawFn, *, max_operators: int = 4) -> Dataflow:
    """A valid dataflow: one or two sources, some operators on what is there, and a sink for all that is left over."""
    numbers = itertools.count()

    def names() -> str:
        return f"{draw(ids)}_{next(numbers)}"

    builder = flow(draw(ids))
    outputs: list[Output] = []
    read: set[str] = set()
    for _ in range(draw(st.integers(1, 2))):
        connector = draw(sources())
        outputs.append(
            builder.source(names(), connector, record_bytes=draw(sizes), utility=draw(st.none() | paths))
        )
    for _ in range(draw(st.integers(0, max_operators))):
        outputs.append(_operator(draw, builder, names(), outputs, read))
    for output in outputs:
        if output.id not in read:
            builder.sink(
                names(),
                draw(sinks()),
                inputs=[output.wired(draw(st.sampled_from(["forward", "spread"])))],
                priority=draw(st.integers(-5, 5)),
                min_accuracy=draw(shares),
            )
    _constraints(draw, builder, builder.build())
    if draw(st.booleans()):
        builder.goals(
            budget_per_hour=draw(st.none() | st.floats(0.01, 1e4)),
            throughput=draw(shares),
            throughput_tolerance=draw(shares),
            remedies=draw(st.permutations(CHEAPEST_FIRST))[: draw(st.integers(0, 4))],
        )
    return builder.build()


def _operator(
    draw: st.DrawFn, builder: FlowBuilder, name: str, outputs: list[Output], read: set[str]
) -> Output:
    kind = draw(st.sampled_from(["map", "keyed", "transform"] + ["union"] * (len(outputs) > 1)))
    at_least = 2 if kind == "union" else 1
    chosen = draw(st.lists(st.sampled_from(outputs), min_size=at_least, max_size=2, unique_by=lambda o: o.id))
    read.update(output.id for output in chosen)
    tasks = draw(parallelisms)
    if kind == "union":
        # Every input gets the same columns first, as a union wants them.
        same = [
            builder.map(f"{name}.in{i}", inputs=[output], schema="u long") for i, output in enumerate(chosen)
        ]
        return builder.union(name, *same, parallelism=tasks)
    settings = {
        "schema": draw(schemas),
        "parallelism": tasks,
        "record_bytes": draw(sizes),
        "latency": draw(st.sampled_from(["read-ready", "read-write"])),
        "keep_by": draw(st.sampled_from([(), ("k",)])),
    }
    if kind == "transform":
        return builder.transform(name, draw(paths), inputs=chosen, cost_s=draw(seconds), **settings)
    settings["takes"] = draw(st.sampled_from(get_args(Takes)))
    if draw(st.booleans()):
        settings["alternates"] = draw(alternates_lists())
    else:
        settings |= {
            "cost_s": draw(seconds),
            "cost_cv": draw(st.floats(0, 5)),
            "selectivity": draw(st.floats(0, 5)),
        }
    if kind == "map":
        wired = [output.wired(draw(st.sampled_from(["forward", "spread", "broadcast"]))) for output in chosen]
        return builder.map(name, inputs=wired, **settings)
    # A map in front gives the key its column.
    front = [
        builder.map(f"{name}.in{i}", inputs=[output], schema="k string") for i, output in enumerate(chosen)
    ]
    state = draw(
        st.just("n long") | st.builds(State, schema=st.just("a long, b double"), bytes_per_task=sizes)
    )
    return builder.keyed(name, inputs=front, key="k", state=state, **settings)


def _constraints(draw: st.DrawFn, builder: FlowBuilder, dataflow: Dataflow) -> None:
    for number in range(draw(st.integers(0, 2))):
        operators = [draw(st.sampled_from([o.id for o in dataflow.operators]))]
        while (after := dataflow.downstream(operators[-1])) and draw(st.booleans()):
            operators.append(draw(st.sampled_from(after)).target)
        leading = bool(dataflow.upstream(operators[0])) and draw(st.booleans())
        trailing = bool(dataflow.downstream(operators[-1])) and draw(st.booleans())
        builder.constrain(
            ("-> " if leading else "") + " -> ".join(operators) + (" ->" if trailing else ""),
            window_s=draw(st.floats(0.1, 1e4)),
            name=f"{number}{draw(texts)}",
            **{f"{draw(st.sampled_from(STATISTICS))}_ms": draw(st.floats(0.001, 1e6))},
        )


def yaml_values() -> st.SearchStrategy[object]:
    """Anything a YAML file can hold, often with words that a dataflow file has."""
    words = st.sampled_from(
        [
            "name",
            "operators",
            "kind",
            "source",
            "map",
            "sink",
            "inputs",
            "from",
            "wiring",
            "connector",
            "load",
            "steps",
        ]
    )
    scalars = (
        st.none()
        | st.booleans()
        | st.integers()
        | st.floats()
        | words
        | st.text(string.printable, max_size=8)
    )
    return st.recursive(
        scalars,
        lambda inner: (
            st.lists(inner, max_size=4) | st.dictionaries(words | st.text(max_size=4), inner, max_size=4)
        ),
        max_leaves=20,
    )
