"""The shape of a dataflow file. Unknown keys and wrong types stop here; `validation` judges what the values mean."""

from __future__ import annotations

import os
from typing import Annotated, Any, cast

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, model_validator

from penstock.dataflow.connectors import OptionValue, Role, with_defaults
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
    LatencyKind,
    Operator,
    OperatorId,
    Parallelism,
    Remedy,
    Sequence,
    State,
    Stream,
    Takes,
    Wiring,
)
from penstock.dataflow.load import Load
from penstock.dataflow.load_schema import AnyLoad, Door


def _listed(given: Any) -> Any:
    return [given] if isinstance(given, str) else given


Names = Annotated[list[str], BeforeValidator(_listed)]
"""One name, or a list of them."""


def _scalar(given: Any) -> OptionValue:
    if not isinstance(given, str | int | float | bool):
        raise ValueError("must be a text, a number, true or false")
    return given


class ConnectorDoor(Door):
    """A connector; the keys beside these are the options of its kind, which `connectors.KINDS` knows."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, Annotated[Any, AfterValidator(_scalar)]] = Field(init=False)

    kind: str
    function: str | None = None
    columns: str | None = Field(default=None, alias="schema")
    load: AnyLoad | None = None

    def to_domain(self, role: Role, base: str) -> Connector:
        """The connector of a source or sink; a file to replay is looked for from `base`."""
        options = dict(self.__pydantic_extra__)
        path = options.get("path")
        if self.kind == "replay" and isinstance(path, str) and path and "://" not in path:
            options["path"] = os.path.join(base, path)
        connector = Connector(
            kind=self.kind,
            options=options,
            function=_function(self.function),
            schema=self.columns,
            load=cast(Load | None, self.load),
        )
        return with_defaults(connector, role)


class AlternateDoor(Door):
    """One implementation of an operator."""

    name: str
    function: str | None = None
    value: float = 1.0
    cost_s: float = 0.0
    cost_cv: float = 1.0
    selectivity: float = 1.0

    def to_domain(self) -> Alternate:
        """The alternate itself."""
        return Alternate(**{**dict(self), "function": _function(self.function)})


class ParallelismDoor(Door):
    """Tasks: a number, `[minimum, maximum]`, `[minimum, maximum, initial]`, or these by name."""

    minimum: int = 1
    maximum: int
    initial: int | None = None

    @model_validator(mode="before")
    @classmethod
    def _short(cls, given: Any) -> Any:
        if isinstance(given, int) and not isinstance(given, bool):
            return {"minimum": given, "maximum": given}
        if isinstance(given, list) and len(given) in (2, 3):
            return dict(zip(("minimum", "maximum", "initial"), given, strict=False))
        return given


class StateDoor(Door):
    """What a keyed operator remembers: its columns, alone or with the expected size."""

    columns: str = Field(alias="schema")
    bytes_per_task: float = 0.0

    @model_validator(mode="before")
    @classmethod
    def _short(cls, given: Any) -> Any:
        return {"schema": given} if isinstance(given, str) else given


class InputDoor(Door):
    """What an operator reads: the id of another, alone or with the wiring."""

    source: str = Field(alias="from")
    wiring: str | None = None

    @model_validator(mode="before")
    @classmethod
    def _short(cls, given: Any) -> Any:
        return {"from": given} if isinstance(given, str) else given


class OperatorDoor(Door):
    """An operator; `function` and the costs stand here when there is one alternate only."""

    kind: str
    inputs: list[InputDoor] = Field(default_factory=list)
    connector: ConnectorDoor | None = None
    function: str | None = None
    cost_s: float = 0.0
    cost_cv: float = 1.0
    selectivity: float = 1.0
    alternates: list[AlternateDoor] | None = None
    parallelism: ParallelismDoor = ParallelismDoor(maximum=1)
    takes: str = "arrow"
    columns: str | None = Field(default=None, alias="schema")
    key: Names = Field(default_factory=list)
    state: StateDoor | None = None
    latency: str = "read-ready"
    record_bytes: float = 100.0
    keep_by: Names = Field(default_factory=list)
    utility: str | None = None
    weight: str | None = None
    priority: int = 0
    min_accuracy: float = 0.0

    @model_validator(mode="after")
    def _one_place_for_costs(self) -> OperatorDoor:
        twice = [k for k in ("function", "cost_s", "cost_cv", "selectivity") if k in self.model_fields_set]
        if self.alternates is not None and twice:
            raise ValueError(f"{', '.join(twice)} belong into the alternates when there are any")
        return self

    def to_domain(self, id_: str, base: str) -> Operator:
        """The operator called `id_`."""
        only = Alternate(
            function=_function(self.function),
            cost_s=self.cost_s,
            cost_cv=self.cost_cv,
            selectivity=self.selectivity,
        )
        state = self.state
        return Operator(
            id=OperatorId(id_),
            kind=cast(Kind, self.kind),
            alternates=(only,) if self.alternates is None else tuple(a.to_domain() for a in self.alternates),
            parallelism=Parallelism(**dict(self.parallelism)),
            takes=cast(Takes, self.takes),
            schema=self.columns,
            key=tuple(self.key),
            state=None if state is None else State(schema=state.columns, bytes_per_task=state.bytes_per_task),
            connector=None
            if self.connector is None
            else self.connector.to_domain(cast(Role, self.kind), base),
            latency=cast(LatencyKind, self.latency),
            record_bytes=self.record_bytes,
            keep_by=tuple(self.keep_by),
            utility=_function(self.utility),
            weight=self.weight,
            priority=self.priority,
            min_accuracy=self.min_accuracy,
        )

    def streams(self, id_: str) -> list[Stream]:
        """The streams into the operator; what is keyed is wired by key unless it says otherwise."""
        usual = "key" if self.kind == "keyed" else "forward"
        return [
            Stream(
                source=OperatorId(each.source),
                target=OperatorId(id_),
                wiring=cast(Wiring, usual if each.wiring is None else each.wiring),
            )
            for each in self.inputs
        ]


class ConstraintDoor(Door):
    """A latency bound on a sequence; exactly one of the bounds."""

    sequence: Annotated[str, AfterValidator(Sequence.parse)]
    name: str | None = None
    mean_ms: float | None = None
    p50_ms: float | None = None
    p95_ms: float | None = None
    p99_ms: float | None = None
    window_s: float = 10.0

    @model_validator(mode="after")
    def _one_bound(self) -> ConstraintDoor:
        if sum(getattr(self, f"{statistic}_ms") is not None for statistic in STATISTICS) != 1:
            raise ValueError("needs exactly one of mean_ms, p50_ms, p95_ms, p99_ms")
        return self

    def to_domain(self) -> Constraint:
        """The constraint, called like its sequence unless it has a name."""
        sequence = cast(Sequence, self.sequence)
        statistic = next(each for each in STATISTICS if getattr(self, f"{each}_ms") is not None)
        return Constraint(
            name=str(sequence) if self.name is None else self.name,
            sequence=sequence,
            bound_ms=getattr(self, f"{statistic}_ms"),
            window_s=self.window_s,
            statistic=statistic,
        )


class GoalsDoor(Door):
    """What the whole dataflow must respect."""

    budget_per_hour: float | None = None
    throughput: float = 0.8
    throughput_tolerance: float = 0.05
    remedies: list[str] = Field(default_factory=lambda: [*map(str, CHEAPEST_FIRST)])

    def to_domain(self) -> Goals:
        """The goals themselves."""
        return Goals(**{**dict(self), "remedies": cast(tuple[Remedy, ...], tuple(self.remedies))})


class FlowDoor(Door):
    """A whole dataflow file."""

    name: str
    operators: dict[str, OperatorDoor]
    constraints: list[ConstraintDoor] = Field(default_factory=list)
    goals: GoalsDoor = GoalsDoor()

    def to_domain(self, base: str) -> Dataflow:
        """The dataflow the file declares; `base` is the folder its relative paths start from."""
        return Dataflow(
            name=self.name,
            operators=tuple(door.to_domain(id_, base) for id_, door in self.operators.items()),
            streams=tuple(s for id_, door in self.operators.items() for s in door.streams(id_)),
            constraints=tuple(door.to_domain() for door in self.constraints),
            goals=self.goals.to_domain(),
        )


def _function(path: str | None) -> Function | None:
    return None if path is None else Function(path=path)


DOORS: dict[str, type[Door]] = {
    "alternates": AlternateDoor,
    "parallelism": ParallelismDoor,
    "state": StateDoor,
    "inputs": InputDoor,
    "constraints": ConstraintDoor,
    "goals": GoalsDoor,
}
"""The doors below the file's own and the operators', by the key they stand under."""
