"""The comfortable way to declare a dataflow in Python.

    flow = penstock.flow("sentiment")
    tweets = flow.source("tweets", replay(generator=make, load=staircase([(60, 100), (60, 300)])))
    hot = tweets.map("filter", keep_hot, takes="pandas", parallelism=(1, 100))
    hot.sink("out", console(), priority=2)
    flow.constrain("filter", mean_ms=30)
    dataflow = flow.build()

Nothing is checked before `build`, which then tells every problem at once.

What functions look like:

- `map` takes and returns what `takes` says. `arrow`: `fn(pyarrow.RecordBatch) -> RecordBatch | Table`; `pandas`:
  `fn(DataFrame) -> DataFrame`; `record`: `fn(dict) -> dict | list[dict] | None`, one record at a time.
- `keyed` is pure: `fn(key: tuple, rows, state: tuple | None) -> (rows | None, state | None)`. `rows` are all of
  one key in one micro-batch, in the form `takes` says (`record`: a list of dicts); `state` is what the function
  returned for that key the last time, None at first; returning None as state forgets the key.
- `transform` is native: `fn(*dataframes) -> dataframe`, one Spark DataFrame for each input.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Unpack

from penstock.dataflow.errors import DataflowError, Problem
from penstock.dataflow.graph import (
    CHEAPEST_FIRST,
    STATISTICS,
    Alternate,
    Connector,
    Constraint,
    Dataflow,
    Function,
    Goals,
    Kind,
    Operator,
    OperatorId,
    Parallelism,
    Remedy,
    State,
    Stream,
    Wiring,
)
from penstock.dataflow.graph import Sequence as OperatorSequence
from penstock.dataflow.settings import (
    AnyFunction,
    AnyParallelism,
    GoalSettings,
    KeyedSettings,
    MapSettings,
    Settings,
    SinkSettings,
    TransformSettings,
)
from penstock.dataflow.validation import problems


def alternate(
    name: str,
    function: AnyFunction | None = None,
    *,
    value: float = 1.0,
    cost_s: float = 0.0,
    cost_cv: float = 1.0,
    selectivity: float = 1.0,
) -> Alternate:
    """One implementation of an operator; `value` is its quality beside the best one's, 1."""
    return Alternate(
        name=name,
        function=None if function is None else Function.of(function),
        value=value,
        cost_s=cost_s,
        cost_cv=cost_cv,
        selectivity=selectivity,
    )


def flow(name: str) -> FlowBuilder:
    """An empty dataflow to add operators to."""
    return FlowBuilder(name)


@dataclass(frozen=True, slots=True)
class Output:
    """What leaves an operator, ready to be the input of others; each method adds one and returns its output."""

    builder: FlowBuilder
    id: OperatorId
    wiring: Wiring | None = None

    def wired(self, wiring: Wiring) -> Output:
        """The same records, spread over the reader's tasks in the given way."""
        return Output(self.builder, self.id, wiring)

    def map(
        self,
        id: str,  # noqa: A002  # the word of the vocabulary, here and below
        function: AnyFunction | None = None,
        *,
        wiring: Wiring | None = None,
        **settings: Unpack[MapSettings],
    ) -> Output:
        """A stateless operator that reads this stream alone."""
        return self.builder.map(id, function, inputs=[self._or(wiring)], **settings)

    def keyed(
        self,
        id: str,  # noqa: A002
        function: AnyFunction | None = None,
        *,
        key: str | Sequence[str],
        state: str | State,
        **settings: Unpack[KeyedSettings],
    ) -> Output:
        """A stateful operator that reads this stream alone."""
        return self.builder.keyed(id, function, inputs=[self], key=key, state=state, **settings)

    def transform(
        self,
        id: str,  # noqa: A002
        function: AnyFunction | None = None,
        **settings: Unpack[TransformSettings],
    ) -> Output:
        """A native DataFrame operator that reads this stream alone."""
        return self.builder.transform(id, function, inputs=[self], **settings)

    def sink(self, id: str, connector: Connector, **settings: Unpack[SinkSettings]) -> None:  # noqa: A002
        """Where the records of this stream leave."""
        self.builder.sink(id, connector, inputs=[self], **settings)

    def _or(self, wiring: Wiring | None) -> Output:
        return self if wiring is None else self.wired(wiring)


class FlowBuilder:
    """A dataflow in the making. Every method adds one thing; `build` gives the finished, validated value."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._operators: list[Operator] = []
        self._streams: list[Stream] = []
        self.constraints: list[Constraint] = []
        self._goals = Goals()
        self._problems: list[Problem] = []

    def source(
        self,
        id: str,  # noqa: A002
        connector: Connector,
        *,
        weight: str | None = None,
        **settings: Unpack[Settings],
    ) -> Output:
        """Where records enter; `weight` names a column they get: 1 / the probability with which they were kept."""
        return self.add(id, "source", (), connector=connector, weight=weight, **settings)

    def map(
        self,
        id: str,  # noqa: A002
        function: AnyFunction | None = None,
        *,
        inputs: Sequence[Output],
        **settings: Unpack[MapSettings],
    ) -> Output:
        """A stateless operator: one `function`, or several `alternates` that do the same work."""
        return self.add(id, "map", inputs, function=function, **settings)

    def keyed(
        self,
        id: str,  # noqa: A002
        function: AnyFunction | None = None,
        *,
        inputs: Sequence[Output],
        key: str | Sequence[str],
        state: str | State,
        **settings: Unpack[KeyedSettings],
    ) -> Output:
        """A stateful operator: remembers `state` (columns as in `n long`) for each value of the `key` columns.

        All alternates share that state, so that switching between them loses nothing.
        """
        remembered = state if isinstance(state, State) else State(schema=state)
        return self.add(
            id, "keyed", inputs, function=function, key=key, state=remembered, wiring="key", **settings
        )

    def transform(
        self,
        id: str,  # noqa: A002
        function: AnyFunction | None = None,
        *,
        inputs: Sequence[Output],
        **settings: Unpack[TransformSettings],
    ) -> Output:
        """A native operator: `function(*dataframes)` returns a DataFrame; measured from outside."""
        return self.add(id, "transform", inputs, function=function, **settings)

    def union(self, id: str, *inputs: Output, parallelism: AnyParallelism = 1) -> Output:  # noqa: A002
        """All records of the inputs, which must have the same columns."""
        return self.add(id, "union", inputs, parallelism=parallelism)

    def sink(
        self,
        id: str,  # noqa: A002
        connector: Connector,
        *,
        inputs: Sequence[Output],
        **settings: Unpack[SinkSettings],
    ) -> None:
        """Where records leave."""
        self.add(id, "sink", inputs, connector=connector, **settings)

    def constrain(
        self,
        sequence: str,
        *,
        mean_ms: float | None = None,
        p50_ms: float | None = None,
        p95_ms: float | None = None,
        p99_ms: float | None = None,
        window_s: float = 10.0,
        name: str | None = None,
    ) -> None:
        """A latency bound on a sequence written as `a -> b`; exactly one of the bounds must be given.

        An arrow at an end (`-> a -> b`) includes the stream there. The name defaults to the sequence.
        """
        made, found = make_constraint(
            f"constrain({sequence!r})",
            sequence,
            name=name,
            mean_ms=mean_ms,
            p50_ms=p50_ms,
            p95_ms=p95_ms,
            p99_ms=p99_ms,
            window_s=window_s,
        )
        self.constraints += made
        self._problems += found

    def goals(self, *, remedies: Sequence[Remedy] = CHEAPEST_FIRST, **goals: Unpack[GoalSettings]) -> None:
        """What the whole dataflow must respect; the last call counts."""
        self._goals = Goals(remedies=tuple(remedies), **goals)

    def build(self) -> Dataflow:
        """The finished dataflow. A DataflowError tells everything that is wrong with it."""
        dataflow = self.unchecked()
        found = (*self._problems, *problems(dataflow))
        if found:
            raise DataflowError(found)
        return dataflow

    def unchecked(self) -> Dataflow:
        """The dataflow as it stands, right or wrong."""
        return Dataflow(
            name=self.name,
            operators=tuple(self._operators),
            streams=tuple(self._streams),
            constraints=tuple(self.constraints),
            goals=self._goals,
        )

    def add(
        self,
        id: str,  # noqa: A002
        kind: Kind,
        inputs: Sequence[Output],
        *,
        wiring: Wiring = "forward",
        function: AnyFunction | None = None,
        alternates: Sequence[Alternate] | None = None,
        cost_s: float = 0.0,
        cost_cv: float = 1.0,
        selectivity: float = 1.0,
        parallelism: AnyParallelism = 1,
        key: str | Sequence[str] = (),
        keep_by: str | Sequence[str] = (),
        utility: AnyFunction | None = None,
        score: AnyFunction | None = None,
        **fields: Any,
    ) -> Output:
        """An operator of any kind; the methods for each kind stand on it, and so do files."""
        only = Alternate(
            function=_function(function), cost_s=cost_s, cost_cv=cost_cv, selectivity=selectivity
        )
        if alternates is not None and only != Alternate():
            message = (
                "function, cost_s, cost_cv and selectivity belong into the alternates when there are any"
            )
            self._problems.append(Problem(place=f"operators.{id}", message=message))
        operator = Operator(
            id=OperatorId(id),
            kind=kind,
            alternates=(only,) if alternates is None else tuple(alternates),
            parallelism=_parallelism(parallelism),
            key=_names(key),
            keep_by=_names(keep_by),
            utility=_function(utility),
            score=_function(score),
            **fields,
        )
        self._operators.append(operator)
        for i, output in enumerate(inputs):
            if output.builder is not self:
                place = f"operators.{id}.inputs[{i}]"
                message = f"'{output.id}' belongs to another dataflow, '{output.builder.name}'"
                self._problems.append(Problem(place=place, message=message))
            self._streams.append(Stream(source=output.id, target=operator.id, wiring=output.wiring or wiring))
        return Output(self, operator.id)


def make_constraint(
    place: str,
    sequence: str,
    *,
    name: str | None = None,
    mean_ms: float | None = None,
    p50_ms: float | None = None,
    p95_ms: float | None = None,
    p99_ms: float | None = None,
    window_s: float = 10.0,
) -> tuple[list[Constraint], list[Problem]]:
    """The constraint, called like its sequence unless it has a name, and what is wrong with it."""
    bounds = dict(zip(STATISTICS, (mean_ms, p50_ms, p95_ms, p99_ms), strict=True))
    given = [(statistic, bound) for statistic, bound in bounds.items() if bound is not None]
    found = []
    if len(given) != 1:
        found.append(Problem(place=place, message="needs exactly one of mean_ms, p50_ms, p95_ms, p99_ms"))
    try:
        parsed = OperatorSequence.parse(sequence)
    except ValueError as problem:
        return [], [*found, Problem(place=place, message=str(problem))]
    called = str(parsed) if name is None else name
    made = [
        Constraint(name=called, sequence=parsed, bound_ms=bound, window_s=window_s, statistic=statistic)
        for statistic, bound in given[:1]
    ]
    return made, found


def _function(given: AnyFunction | None) -> Function | None:
    return None if given is None else Function.of(given)


def _names(given: str | Sequence[str]) -> tuple[str, ...]:
    return (given,) if isinstance(given, str) else tuple(given)


def _parallelism(given: AnyParallelism) -> Parallelism:
    if isinstance(given, Parallelism):
        return given
    if isinstance(given, tuple):
        minimum, maximum, *initial = given
        return Parallelism(minimum=minimum, maximum=maximum, initial=initial[0] if initial else None)
    return Parallelism(minimum=given, maximum=given)
