"""Deployments: against brute force on random small demands, promises that hold for all, and demands nobody can meet."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from penstock.dataflow import Alternate, Dataflow, Goals, Operator, OperatorId, State, Stream
from penstock.dataflow.graph import Kind
from penstock.policies.provisioning import CATALOGUE, M1, DemandError, Worth, assess, demand_of
from penstock.policies.provisioning.catalogue import spot
from penstock.policies.provisioning.problem import Demand
from penstock.telemetry import MachineClass
from penstock_papers.dynamic_dataflows.deciders import DECIDERS
from penstock_papers.dynamic_dataflows.roads import roads_demand
from penstock_papers.dynamic_dataflows.throughput import throughput, throughputs


def line(*operators: tuple[Alternate, ...], goals: Goals | None = None) -> Dataflow:
    """A chain whose first operator is the source and whose last is the sink."""
    kinds: list[Kind] = ["source", *["map"] * (len(operators) - 2), "sink"]
    made = tuple(
        Operator(id=OperatorId(f"o{i}"), kind=kind, alternates=ways)
        for i, (kind, ways) in enumerate(zip(kinds, operators, strict=True))
    )
    streams = tuple(Stream(source=a.id, target=b.id) for a, b in pairwise(made))
    return Dataflow("line", made, streams, goals=goals or Goals())


alternate_sets = st.lists(
    st.tuples(st.floats(0.3, 1.0), st.floats(0.02, 0.6), st.sampled_from([0.5, 1.0])), min_size=1, max_size=2
).map(
    lambda ways: tuple(
        Alternate(name=f"a{i}", value=v, cost_s=c, selectivity=s) for i, (v, c, s) in enumerate(ways)
    )
)


@st.composite
def small_demands(draw: st.DrawFn) -> Demand:
    flow = line(*draw(st.lists(alternate_sets, min_size=2, max_size=4)))
    rate = draw(st.floats(1, 12))
    full = draw(st.floats(0.5, 4.0))
    return demand_of(
        flow, rate, M1, worth=Worth(full_per_hour=full, least_per_hour=full / 2), period_s=12 * 3600
    )


def nearly_alike() -> Demand:
    """Alternates whose values hardly differ: what machines cost is all that there is to gain."""
    only = (Alternate(name="a0", value=1.0, cost_s=0.5, selectivity=0.5),)
    less = Alternate(name="a0", value=0.99570815, cost_s=0.5, selectivity=0.5)
    flow = line(only, (less, Alternate(name="a1", value=1.0, cost_s=0.5, selectivity=0.5)), only)
    return demand_of(flow, 3.0, M1, worth=Worth(full_per_hour=2.0, least_per_hour=1.0), period_s=12 * 3600)


@settings(max_examples=25)
@example(demand=nearly_alike())
@given(demand=small_demands())
def test_within_five_per_cent_of_the_optimum(demand: Demand) -> None:
    optimum = DECIDERS["br"](demand)
    assert optimum.assessment.meets
    ours = DECIDERS["best"](demand)
    assert ours.assessment.meets
    allowed = 0.05 * abs(optimum.assessment.profit) + 1e-3 * demand.sigma + 1e-12
    assert ours.assessment.profit >= optimum.assessment.profit - allowed
    assert ours.assessment.profit <= optimum.assessment.profit + 1e-6, "nothing beats trying everything"
    for name in ("ce", "sh"):
        found = DECIDERS[name](demand).assessment
        assert found.meets
        assert found.profit <= optimum.assessment.profit + 1e-6


@pytest.mark.parametrize("rate", [5.0, 10.0, 20.0])
def test_the_trial_at_small_rates(rate: float) -> None:
    demand = roads_demand(rate)
    optimum = DECIDERS["br"](demand).assessment.profit
    for name in ("best", "ga"):
        found = DECIDERS[name](demand).assessment
        assert found.meets
        assert found.profit >= optimum - 0.05 * abs(optimum)


def test_next_to_nothing_still_needs_a_core() -> None:
    demand = demand_of(line(FREE, WORK, FREE), 1e-9, M1)
    ours, optimum = DECIDERS["best"](demand), DECIDERS["br"](demand)
    assert ours.assessment.profit == pytest.approx(optimum.assessment.profit)
    assert int(ours.deployment.cores.sum()) == 1


@settings(max_examples=10)
@given(rate=st.floats(1, 5e4), name=st.sampled_from(["best", "ce", "sh"]))
def test_deployments_are_what_they_say(rate: float, name: str) -> None:
    demand = roads_demand(rate)
    found = DECIDERS[name](demand)
    deployment = found.deployment
    assert (deployment.cores.sum(axis=1) <= demand.cores[deployment.machines]).all()
    assert (deployment.cores >= 0).all()
    assert (deployment.cores.sum(axis=0) >= 1).all(), "every operator that costs something has a core"
    assert found.assessment == assess(demand, deployment)
    assert found.assessment.throughput >= 0.8 - 1e-6
    price = sum(M1[k].price_per_hour for k in deployment.machines)
    assert found.assessment.cost_per_hour == pytest.approx(price)


@settings(max_examples=20)
@given(power=st.lists(st.floats(0, 60), min_size=8, max_size=8))
def test_throughput_of_one_and_of_many_agree(power: list[float]) -> None:
    demand = roads_demand(50)
    alternates = np.array([0, 0, 1, 0, 0, 0, 0, 1])
    one = throughput(demand.graph, demand.input_rps, alternates, np.array(power))
    many, lowest = throughputs(demand.graph, demand.input_rps, alternates[None, :], np.array([power]))
    assert many[0] == pytest.approx(one)
    assert lowest[0] <= one + 1e-9


def test_objective_breaks_even_where_it_should() -> None:
    demand = roads_demand(100)
    least, most = demand.value_range
    assert demand.profit(most, demand.break_even.full_per_hour) == pytest.approx(0)
    assert demand.profit(least, demand.break_even.least_per_hour) == pytest.approx(0)


def test_spot_is_cheaper_and_loses_the_time_of_interruptions() -> None:
    on_demand = CATALOGUE["current"][0]
    cheap = spot(on_demand, discount=0.6, interruptions_per_hour=1.0)
    assert cheap.price_per_hour == pytest.approx(0.4 * on_demand.price_per_hour)
    assert cheap.speed == pytest.approx(on_demand.speed * (1 - (on_demand.startup_s + 120) / 3600))


FREE = (Alternate(),)
WORK = (Alternate(name="good", cost_s=0.1), Alternate(name="fast", cost_s=0.02, value=0.7))


@pytest.mark.parametrize("name", ["best", "ce", "sh", "ga", "br"])
@pytest.mark.parametrize(
    ("flow", "rate", "classes", "says"),
    [
        (line(FREE, FREE), 10.0, M1, "no operator declares what a record costs"),
        (line(FREE, WORK, FREE), 1e13, M1, "of the largest machines"),
        (line(FREE, WORK, FREE, goals=Goals(budget_per_hour=0.05)), 5000.0, M1, "the budget is 0.05"),
        (
            line(FREE, WORK, FREE),
            5000.0,
            (MachineClass(name="one", price_per_hour=1.0, available=2),),
            "all machines that can be had make 2",
        ),
        (line(FREE, WORK, FREE), 0.0, M1, "nothing comes in"),
        (line(FREE, WORK, FREE), math.inf, M1, "must be finite"),
        (line(FREE, WORK, FREE), 5.0, (), "no machine class"),
    ],
    ids=["free", "rate", "budget", "machines", "nothing", "infinite", "no-class"],
)
def test_impossible_demands_are_explained(
    name: str, flow: Dataflow, rate: float, classes: tuple[MachineClass, ...], says: str
) -> None:
    with pytest.raises(DemandError, match=says):
        DECIDERS[name](demand_of(flow, rate, classes))


def test_no_class_large_enough_for_the_state() -> None:
    flow = line(FREE, WORK, FREE)
    keyed = Operator(
        id=OperatorId("o1"),
        kind="keyed",
        alternates=WORK,
        key=("k",),
        state=State(schema="n long", bytes_per_task=1e12),
    )
    large = Dataflow("line", (flow.operators[0], keyed, flow.operators[2]), flow.streams)
    with pytest.raises(DemandError, match="no machine class is large enough"):
        demand_of(large, 5.0, M1)


def test_free_and_worthless_alternates_are_noted_and_not_divided_by() -> None:
    ways = (Alternate(name="good", cost_s=0.1), Alternate(name="free", value=0.5))
    demand = demand_of(line(FREE, ways, FREE), 10.0, M1)
    assert any("free" in note for note in demand.notes)
    for name in ("best", "ce", "sh", "br"):
        assert DECIDERS[name](demand).assessment.meets
