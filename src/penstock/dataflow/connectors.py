"""Where records come from and where they go: a maker for each kind, and the one table that says what each takes.

Sources and sinks may share a kind (`kafka`, `files`); the operator that holds the connector says which it is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from penstock.dataflow.graph import Connector, Function
from penstock.dataflow.load import Load, constant

OptionValue = str | int | float | bool
Role = Literal["source", "sink"]
Need = Literal["required", "optional", "refused"]

FILE_FORMATS = ("csv", "json", "orc", "parquet", "text")


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One option of a connector: its type, its range and what it means."""

    type: type[str] | type[int] | type[float] | type[bool]
    meaning: str
    required: bool = False
    default: OptionValue | None = None
    """What the makers, and files that do not mention it, set; None: not set at all."""
    above: float | None = None
    """A number must be larger than this."""
    choices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectorKind:
    """What one kind of connector takes."""

    options: Mapping[str, Option]
    function: Need = "refused"
    schema: Need = "refused"
    load: Need = "refused"
    passes_on: str | None = None
    """Options that begin with this prefix go to Spark as they are."""


_TIME_COLUMN = Option(
    type=str,
    meaning="column with the time at which the record came into being; without it, the time the source gives it",
)
_MAX_ROWS = Option(type=int, above=0, meaning="most rows in one micro-batch")
_SERVERS = Option(type=str, required=True, meaning="Kafka bootstrap servers, `host:port` separated by commas")

KINDS: Mapping[tuple[Role, str], ConnectorKind] = {
    ("source", "replay"): ConnectorKind(
        options={
            "path": Option(type=str, meaning="CSV or Parquet file to play; instead of a function"),
            "partitions": Option(type=int, default=2, above=0, meaning="parallel readers"),
            "loop": Option(type=bool, default=True, meaning="start again at the end of the file"),
            "max_rows_per_batch": _MAX_ROWS,
            "time_column": _TIME_COLUMN,
        },
        function="optional",
        schema="optional",
        load="required",
    ),
    ("source", "kafka"): ConnectorKind(
        options={
            "topic": Option(type=str, required=True, meaning="topic to read"),
            "servers": _SERVERS,
            "starting": Option(
                type=str,
                default="latest",
                choices=("latest", "earliest"),
                meaning="where a new query begins",
            ),
            "value_format": Option(
                type=str,
                default="string",
                choices=("string", "json", "binary"),
                meaning="how a record's value is read; json needs a schema and gives its columns",
            ),
            "max_rows_per_batch": _MAX_ROWS,
            "time_column": _TIME_COLUMN,
        },
        schema="optional",
        load="optional",
        passes_on="kafka.",
    ),
    ("source", "files"): ConnectorKind(
        options={
            "path": Option(type=str, required=True, meaning="folder in which new files appear"),
            "format": Option(type=str, required=True, choices=FILE_FORMATS, meaning="format of the files"),
            "max_files_per_batch": Option(type=int, above=0, meaning="most files in one micro-batch"),
            "header": Option(type=bool, meaning="CSV files have a header line"),
            "time_column": _TIME_COLUMN,
        },
        schema="required",
        load="optional",
    ),
    ("source", "rate"): ConnectorKind(
        options={
            "rows_per_second": Option(type=float, required=True, above=0, meaning="rows made each second"),
            "partitions": Option(type=int, above=0, meaning="parallel readers"),
            "time_column": _TIME_COLUMN,
        },
    ),
    ("source", "dataframe"): ConnectorKind(options={"time_column": _TIME_COLUMN}, load="optional"),
    ("sink", "kafka"): ConnectorKind(
        options={
            "topic": Option(type=str, required=True, meaning="topic to write to"),
            "servers": _SERVERS,
            "value_format": Option(
                type=str,
                default="json",
                choices=("json", "columns"),
                meaning="json: the whole record as value; columns: its own `key` and `value` columns",
            ),
        },
        passes_on="kafka.",
    ),
    ("sink", "files"): ConnectorKind(
        options={
            "path": Option(type=str, required=True, meaning="folder to write to"),
            "format": Option(
                type=str, default="parquet", choices=FILE_FORMATS, meaning="format of the files"
            ),
        },
    ),
    ("sink", "console"): ConnectorKind(
        options={
            "rows": Option(type=int, default=20, above=0, meaning="most rows shown of a batch"),
            "truncate": Option(type=bool, default=True, meaning="cut long values"),
        },
    ),
    ("sink", "memory"): ConnectorKind(
        options={"table": Option(type=str, required=True, meaning="temporary table that collects the rows")},
    ),
    ("sink", "foreach-batch"): ConnectorKind(options={}, function="required"),
    ("sink", "discard"): ConnectorKind(options={}),
}


def kinds_of(role: Role) -> tuple[str, ...]:
    """The kinds of connector a source, or a sink, can have."""
    return tuple(kind for each, kind in KINDS if each == role)


def with_defaults(connector: Connector, role: Role) -> Connector:
    """`connector` with every option set that has a default, as its maker would have done."""
    rules = KINDS.get((role, connector.kind))
    options = {} if rules is None else rules.options
    defaults = {name: option.default for name, option in options.items() if option.default is not None}
    return replace(connector, options={**connector.options, **defaults, **connector.options})


def expected_load(connector: Connector) -> Load | None:
    """The load a source's declaration promises; None when only a running source will tell."""
    if connector.load is None and connector.kind == "rate":
        return constant(float(connector.options["rows_per_second"]))
    return connector.load


def replay(
    path: str | None = None,
    generator: Callable[..., Any] | str | None = None,
    *,
    load: Load,
    schema: str | None = None,
    partitions: int = 2,
    loop: bool = True,
    max_rows_per_batch: int | None = None,
    time_column: str | None = None,
) -> Connector:
    """A source that plays a file or a generator at the rate of `load`.

    `path` is a CSV or Parquet file. `generator` is `fn(start: int, stop: int) -> pyarrow.RecordBatch`: the rows
    of those running numbers, the same each time it is asked, because a restarted query asks again. With neither
    the source can be simulated, not run. Without a `schema` the file or an empty range of the generator tells.
    """
    # fmt: off
    return _made(
        "replay", function=generator, schema=schema, load=load, path=path, partitions=partitions, loop=loop,
        max_rows_per_batch=max_rows_per_batch, time_column=time_column,
    )
    # fmt: on


def kafka(
    topic: str,
    servers: str,
    *,
    starting: Literal["latest", "earliest"] = "latest",
    value_format: Literal["string", "json", "binary"] = "string",
    schema: str | None = None,
    max_rows_per_batch: int | None = None,
    time_column: str | None = None,
    load: Load | None = None,
    kafka_options: Mapping[str, str] | None = None,
) -> Connector:
    """A source that reads a Kafka topic.

    `string` and `binary` give the columns `key` and `value`, `json` those of `schema`; all give Kafka's
    `timestamp`. `load` is what to expect, for simulation and planning. `kafka_options` are the client's own
    settings (`{"kafka.security.protocol": "SSL"}`).
    """
    # fmt: off
    return _made(
        "kafka", schema=schema, load=load, topic=topic, servers=servers, starting=starting, value_format=value_format,
        max_rows_per_batch=max_rows_per_batch, time_column=time_column, more=kafka_options,
    )
    # fmt: on


def files(
    path: str,
    format: str,  # noqa: A002  # the word Spark has for it
    schema: str,
    *,
    header: bool | None = None,
    max_files_per_batch: int | None = None,
    time_column: str | None = None,
    load: Load | None = None,
) -> Connector:
    """A source that reads the files that appear in a folder."""
    # fmt: off
    return _made(
        "files", schema=schema, load=load, path=path, format=format, header=header,
        max_files_per_batch=max_files_per_batch, time_column=time_column,
    )
    # fmt: on


def rate(rows_per_second: float, *, partitions: int | None = None) -> Connector:
    """Spark's own rate source: the columns `timestamp` and `value`, at a constant rate."""
    return _made("rate", rows_per_second=rows_per_second, partitions=partitions)


def dataframe(df: Any, *, time_column: str | None = None, load: Load | None = None) -> Connector:
    """A source that is a streaming DataFrame the user already has; it cannot be written to a file."""
    return replace(_made("dataframe", load=load, time_column=time_column), dataframe=df)


def kafka_sink(
    topic: str,
    servers: str,
    *,
    value_format: Literal["json", "columns"] = "json",
    kafka_options: Mapping[str, str] | None = None,
) -> Connector:
    """A sink that writes to a Kafka topic: each record as JSON, or its own `key` and `value` columns."""
    return _made("kafka", topic=topic, servers=servers, value_format=value_format, more=kafka_options)


def files_sink(path: str, format: str = "parquet") -> Connector:  # noqa: A002
    """A sink that adds files to a folder, exactly once."""
    return _made("files", path=path, format=format)


def console(*, rows: int = 20, truncate: bool = True) -> Connector:
    """A sink that prints each batch."""
    return _made("console", rows=rows, truncate=truncate)


def memory(table: str) -> Connector:
    """A sink that collects all rows in a temporary table of the driver, for small results."""
    return _made("memory", table=table)


def foreach_batch(function: Callable[..., Any] | str) -> Connector:
    """A sink that calls `function(dataframe, batch_id)` with each micro-batch."""
    return _made("foreach-batch", function=function)


def discard() -> Connector:
    """A sink that does all the work and keeps nothing."""
    return _made("discard")


def _made(
    kind: str,
    *,
    function: Callable[..., Any] | str | None = None,
    schema: str | None = None,
    load: Load | None = None,
    more: Mapping[str, OptionValue] | None = None,
    **options: OptionValue | None,
) -> Connector:
    given = {name: value for name, value in {**options, **(more or {})}.items() if value is not None}
    made = None if function is None else Function.of(function)
    return Connector(kind=kind, options=given, function=made, schema=schema, load=load)
