"""The builder: what it makes, and that it tells everything that is wrong at once."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from penstock.dataflow import (
    Alternate,
    Constraint,
    DataflowError,
    Function,
    FunctionNotFoundError,
    Goals,
    Parallelism,
    Sequence,
    Stream,
    alternate,
    constant,
    flow,
    problems,
)
from penstock.dataflow.builder import FlowBuilder
from penstock.dataflow.connectors import console, dataframe, discard, expected_load, rate, replay


def make(start, stop):
    raise NotImplementedError


def keep(rows):
    return rows


def count(key, rows, state):
    return rows, state


def sentiment() -> FlowBuilder:
    builder = flow("sentiment")
    tweets = builder.source(
        "tweets", replay(generator=make, load=constant(100), schema="id long, topic string")
    )
    hot = tweets.map("filter", keep, takes="pandas", parallelism=(1, 100), cost_s=0.001, selectivity=0.2)
    both = [alternate("full", keep, cost_s=2e-3), alternate("quick", keep, value=0.7)]
    scored = hot.map("score", alternates=both, parallelism=(1, 200, 7), wiring="spread")
    counts = scored.keyed("count", count, key="topic", state="n long", schema="topic string, n long")
    merged = builder.map("merge", keep, inputs=[tweets, counts.wired("broadcast")])
    builder.union("both", merged, tweets).sink("raw", discard())
    builder.transform("join", keep, inputs=[counts, scored]).sink(
        "out", console(), priority=2, min_accuracy=0.4
    )
    builder.constrain("filter -> score", mean_ms=30, window_s=5)
    builder.constrain("-> count ->", p95_ms=100, name="counting")
    builder.goals(budget_per_hour=3.0)
    return builder


def test_what_is_declared_is_what_is_built():
    dataflow = sentiment().build()
    assert [o.kind for o in dataflow.operators] == [
        "source", "map", "map", "keyed", "map", "union", "sink", "transform", "sink",
    ]  # fmt: skip
    assert dataflow.upstream("merge") == (
        Stream(source="tweets", target="merge", wiring="forward"),
        Stream(source="count", target="merge", wiring="broadcast"),
    )
    assert dataflow.upstream("score")[0].wiring == "spread"
    assert dataflow.upstream("count")[0].wiring == "key"
    assert [s.source for s in dataflow.upstream("join")] == ["count", "score"]
    assert dataflow.operator("score").parallelism == Parallelism(minimum=1, maximum=200, initial=7)
    assert dataflow.operator("score").best.name == "full"
    assert dataflow.operator("filter").alternates == (
        Alternate(function=Function(keep), cost_s=0.001, selectivity=0.2),
    )
    assert dataflow.operator("count").key == ("topic",)
    assert dataflow.constraints == (
        Constraint(
            name="filter -> score",
            sequence=Sequence(operators=("filter", "score")),
            bound_ms=30,
            window_s=5,
        ),
        Constraint(
            name="counting",
            sequence=Sequence(operators=("count",), leading_stream=True, trailing_stream=True),
            bound_ms=100,
            statistic="p95",
        ),
    )
    assert dataflow.goals == Goals(budget_per_hour=3.0)
    assert dataflow.operator("out").priority == 2


def test_building_twice_gives_the_same():
    builder = sentiment()
    assert builder.build() == builder.build()


def test_all_problems_at_once():
    builder, other = sentiment(), flow("other")
    foreign = other.source("elsewhere", rate(5))
    builder.constrain("->", mean_ms=1)
    builder.constrain("filter", mean_ms=1, p95_ms=2)
    builder.map("idle", keep, inputs=[foreign], alternates=[alternate("a"), alternate("a", cost_s=-1)])
    with pytest.raises(DataflowError) as caught:
        builder.build()
    told = {str(problem) for problem in caught.value.problems}
    assert told == {
        "constrain('->'): sequence '->' is empty or has an arrow without an operator between",
        "constrain('filter'): needs exactly one of mean_ms, p50_ms, p95_ms, p99_ms",
        "operators.idle: function, cost_s, cost_cv and selectivity belong into the alternates when there are any",
        "operators.idle.inputs[0]: 'elsewhere' belongs to another dataflow, 'other'",
        "operators.idle.inputs[0]: there is no operator 'elsewhere'; known are tweets, filter, score, count, merge, "
        "both, raw, join, out, idle",
        "operators.idle.alternates: 'a' is declared 2 times",
        "operators.idle.alternates[1].cost_s: must not be negative (got -1)",
        "operators.idle: nothing reads it; end it in a sink or leave it out",
    }


def test_an_id_twice():
    builder = flow("f")
    source = builder.source("s", rate(1))
    source.map("m", keep).sink("o", discard())
    source.map("m", keep)
    with pytest.raises(DataflowError, match=r"operators\.m: is declared 2 times"):
        builder.build()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"cost_s": "much"}, "cost_s: must be a number (got 'much')"),
        ({"cost_s": 10**400}, "cost_s: must be a finite number"),
        ({"parallelism": (1, 2.5)}, "parallelism.maximum: must be a whole number (got 2.5)"),
        ({"parallelism": True}, "parallelism.minimum: must be a whole number (got True)"),
        ({"function": 5}, "function: cannot be called (got 5)"),
        ({"schema": 5}, "schema: must be a text"),
        ({"takes": None}, "takes: must be one of arrow, pandas, record (got None)"),
        ({"key": ["id"]}, "key: means nothing: no input is wired by key"),
        ({"keep_by": [3]}, "keep_by[0]: must be a text that is not empty (got 3)"),
    ],
)
def test_wrong_types_are_problems_too(settings, message):
    builder = flow("f")
    builder.source("s", rate(1)).map("m", **settings).sink("o", discard())
    with pytest.raises(DataflowError) as caught:
        builder.build()
    assert f"operators.m.{message}" in str(caught.value)


def test_unknown_settings_are_type_errors():
    with pytest.raises(TypeError, match="colour"):
        flow("f").source("s", rate(1)).map("m", keep, colour="red")


def test_numbers_of_numpy_are_numbers():
    builder = flow("f")
    builder.source("s", rate(1)).map(
        "m", cost_s=np.float32(0.5), parallelism=(np.int64(1), np.int64(3))
    ).sink("o", discard())
    assert builder.build().operator("m").parallelism.maximum == 3


def test_functions_are_only_checked_when_asked():
    builder = flow("f")
    builder.source("s", replay(load=constant(1))).map("m", "no.such.module:f").map("n").sink("o", discard())
    dataflow = builder.build()
    assert problems(dataflow) == ()
    told = {p.place: p.message for p in problems(dataflow, check_functions=True)}
    assert set(told) == {"operators.s.connector", "operators.m.function", "operators.n.function"}
    assert "cannot import 'no.such.module:f'" in told["operators.m.function"]


class Holder:
    def method(self):
        return 1

    @staticmethod
    def still():
        return 2


@pytest.mark.parametrize(
    ("target", "path"),
    [
        (keep, f"{__name__}:keep"),
        (Holder.still, f"{__name__}:Holder.still"),
        (lambda: 1, None),
        (Holder().method, None),
    ],
)
def test_a_function_has_a_path_only_if_it_leads_back(target, path):
    function = Function(target)
    assert function.path == path
    if path is not None:
        assert Function(path=path).resolve() is target
        again = pickle.loads(pickle.dumps(function))
        assert again == function
        assert again.resolve() is target


@pytest.mark.parametrize(
    "path", ["nocolon", "os:", ":f", "os:nothing", "os:sep", "tests.dataflow.broken_module:f"]
)
def test_what_cannot_be_imported_says_so(path):
    with pytest.raises(FunctionNotFoundError, match=r"os|nocolon|:f"):
        Function(path=path).resolve()


def test_expected_load():
    assert expected_load(rate(20)) == constant(20)
    assert expected_load(replay(load=constant(3))) == constant(3)
    assert expected_load(dataframe(object())) is None
