"""Random proposals about one small dataflow, for properties of damping and arbitration."""

from collections.abc import Mapping

from hypothesis import strategies as st

from penstock.dataflow import (
    Constraint,
    Dataflow,
    Goals,
    Operator,
    OperatorId,
    Parallelism,
    Sequence,
    Stream,
)
from penstock.dataflow.graph import CHEAPEST_FIRST
from penstock.policies.actions import Acquire, Action, Expectation, Move, Pace, Release, Scale, Shed, Switch
from penstock.policies.policy import Notice, Proposal
from penstock.policies.reasons import Reason
from penstock.telemetry import Snapshot
from penstock.testing import a_snapshot
from penstock.testing.builders import TWO_WAYS

NODES = 4
OPERATORS = ("in", "a", "b", "c", "out")
KEEP = {"in": 0.8, "in->a": 0.7, "in->b": 1.0}


def the_dataflow(remedies: tuple[str, ...] = CHEAPEST_FIRST) -> Dataflow:
    """in -> a, b -> c -> out, with two goals."""
    bounds = Parallelism(minimum=1, maximum=8)
    kinds = dict(zip(OPERATORS, ("source", "map", "map", "map", "sink"), strict=True))
    return Dataflow(
        name="diamond",
        operators=tuple(
            Operator(id=OperatorId(o), kind=k, alternates=TWO_WAYS, parallelism=bounds)
            for o, k in kinds.items()
        ),
        streams=tuple(
            Stream(source=OperatorId(a), target=OperatorId(b))
            for a, b in (("in", "a"), ("in", "b"), ("a", "c"), ("b", "c"), ("c", "out"))
        ),
        constraints=(
            Constraint(name="fast", sequence=Sequence.parse("a -> c"), bound_ms=50),
            Constraint(name="slow", sequence=Sequence.parse("b -> c"), bound_ms=500),
        ),
        goals=Goals(remedies=remedies),
    )


def the_snapshot(
    remedies: tuple[str, ...] = CHEAPEST_FIRST, time_s: float = 100.0, keep: Mapping[str, float] = KEEP
) -> Snapshot:
    return a_snapshot(
        the_dataflow(remedies), time_s=time_s, parallelism=3, nodes=NODES, keep=keep, alternate={"a": "good"}
    )


operators = st.sampled_from([OperatorId(o) for o in OPERATORS])
nodes = st.sampled_from([f"n{i}" for i in range(NODES)])
reasons = st.builds(lambda n: Reason(code="test", facts={"n": n}), st.sampled_from([0, 1]))
goals = st.sampled_from([None, None, "fast", "slow"])
expectations = st.none() | st.builds(
    Expectation,
    metric=st.sampled_from(["latency_s", "utilisation", "parallelism"]),
    subject=st.sampled_from(["fast", "slow", "a"]),
    value=st.sampled_from([0.01, 0.3, 2.0]),
    within_s=st.sampled_from([5.0, 10.0, 30.0]),
)
common = {"reason": reasons, "expects": expectations, "goal": goals}


def distinct(draw, kind, first, second, values, **fields):
    one, other = draw(st.lists(values, min_size=2, max_size=2, unique=True))
    built = {name: draw(s) for name, s in (common | fields).items()}
    return kind(**built, **{first: one, second: other})


@st.composite
def actions(draw) -> Action:
    match draw(st.sampled_from(["scale", "move", "shed", "switch", "pace", "acquire", "release"])):
        case "scale":
            built = {name: draw(s) for name, s in common.items()}
            target = draw(st.sampled_from([1, 2, 4, 6, 9]))
            return Scale(operator=draw(st.none() | operators), current=3, target=target, **built)
        case "move":
            return distinct(
                draw, Move, "source", "target", nodes, operator=operators, index=st.integers(0, 2)
            )
        case "shed":
            stream = draw(st.sampled_from(["in", "in->a", "in->b", "a->c"]))
            operator, _, target = stream.partition("->")
            built = {name: draw(s) for name, s in common.items()}
            keep = draw(st.sampled_from([0.2, 0.5, 0.75, 1.0]))
            return Shed(
                operator=OperatorId(operator),
                target=OperatorId(target) if target else None,
                keep=keep,
                **built,
            )
        case "switch":
            return distinct(
                draw, Switch, "current", "target", st.sampled_from(["good", "fast"]), operator=operators
            )
        case "pace":
            stream = draw(st.sampled_from([None, "in->a"]))
            return Pace(
                reason=draw(reasons),
                goal=draw(goals),
                stream=stream,
                query="q" if stream is None else None,
                deadline_s=draw(st.sampled_from([0.0, 0.1])),
            )
        case "acquire":
            return Acquire(
                reason=draw(reasons), goal=draw(goals), machine="standard", count=draw(st.integers(1, 3))
            )
        case _:
            return Release(reason=draw(reasons), goal=draw(goals), node=draw(nodes))


notices = st.builds(Notice, goal=st.sampled_from(["fast", "slow"]), reason=reasons)


@st.composite
def some_proposals(draw) -> tuple[Proposal, ...]:
    names = draw(st.lists(st.sampled_from(["elastic", "mover", "shedder"]), unique=True, max_size=3))
    return tuple(
        Proposal(
            policy=name,
            actions=tuple(draw(st.lists(actions(), max_size=5))),
            notices=tuple(draw(st.lists(notices, max_size=1))),
        )
        for name in names
    )


keeps_now = st.sampled_from([KEEP, {}])
remedy_orders = st.permutations(CHEAPEST_FIRST).map(tuple)
