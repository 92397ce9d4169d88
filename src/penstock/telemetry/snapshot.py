"""Everything measured in one interval, in columns: the only thing a policy ever sees of the world.

Each part is a table: equally long arrays, a row for a node, a task, a stream... Rows of operators, streams and
constraints are those of the `Dataflow`; other tables point to them by row number. What was not measured in the
interval is marked in the table's `known` column; its numbers are then 0 and mean nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from penstock.arrays import Bools, Floats, Ints
from penstock.dataflow import Dataflow
from penstock.telemetry.machine_class import MachineClass
from penstock.telemetry.moments import Moments, totals
from penstock.telemetry.operator_view import OperatorView
from penstock.telemetry.sketch import Sketch
from penstock.telemetry.table import LATER, Table


@dataclass(frozen=True, kw_only=True, eq=False)
class Nodes(Table):
    """Where tasks run: Spark executors with their hosts, or simulated machines."""

    ids: tuple[str, ...]
    hosts: tuple[str, ...]
    """Nodes with the same host share its CPU, network and foreign load."""
    machines: tuple[str, ...]
    """Name of the machine class."""
    cores: Floats
    speed: Floats
    """Observed speed of a core relative to the reference core."""
    speed_known: Bools = LATER
    """Whether `speed` was inferred from tasks, the executor beside the others; else it is that of the machine class."""
    own_cpu: Floats
    """Cores that our tasks on the node kept busy."""
    foreign_cpu: Floats
    """Cores of the host that other processes kept busy."""
    load_average: Floats
    memory_bytes: Floats
    memory_used_bytes: Floats
    bandwidth_bytes_per_s: Floats
    """Bytes per second the node's network can carry; 0: unknown."""
    net_in_bytes_per_s: Floats
    net_out_bytes_per_s: Floats
    price_per_hour: Floats
    started_s: Floats
    paid_until_s: Floats
    ready: Bools
    """False while the node is still starting."""
    draining: Bools
    known: Bools

    @cached_property
    def row(self) -> dict[str, int]:
        """Node id to row."""
        return {id_: i for i, id_ in enumerate(self.ids)}

    @property
    def staying(self) -> Bools:
        """Which are ready and not on their way out: tasks may be put there."""
        return self.ready & ~self.draining

    @property
    def price_per_core_hour(self) -> float:
        """What a core costs on average; 0 without any."""
        cores = self.cores.sum()
        return float(self.price_per_hour.sum() / cores) if cores > 0 else 0.0

    @property
    def available_cpu(self) -> Floats:
        """Cores our tasks can have: all cores less what others use."""
        return np.clip(self.cores - self.foreign_cpu, 0.0, None)


@dataclass(frozen=True, kw_only=True, eq=False)
class Operators(Table):
    """One row per operator of the dataflow, in its order."""

    parallelism: Ints
    alternate: Ints
    """Index of the active alternate."""
    elastic: Bools
    """Whether the runtime can change this operator's parallelism by itself (a Spark stage's cannot)."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Alternates(Table):
    """What each alternate was seen to do; one row per (operator, alternate), also of those not active."""

    operator: Ints
    index: Ints
    service_s: Moments
    """Core-seconds per record; count 0: never run, believe the declaration."""
    records_in: Floats
    records_out: Floats
    agreement: Floats
    """Share of sampled records for which it gave what the best alternate gives; only where `known`."""
    known: Bools


@dataclass(frozen=True, kw_only=True, eq=False)
class Tasks(Table):
    """One row per task. Counts are of the interval."""

    operator: Ints
    index: Ints
    node: Ints
    """Row in `nodes`; -1: not placed."""
    arrived: Floats
    processed: Floats
    emitted: Floats
    shed: Floats
    queued: Floats
    """Records waiting at the end of the interval."""
    bytes_in: Floats
    bytes_out: Floats
    busy_s: Floats
    cpu: Floats
    """Cores used, averaged over the interval."""
    service_s: Moments
    interarrival_s: Moments
    latency_s: Moments
    """Task latency as its operator declares it (read-ready or read-write)."""
    remote_bytes: Floats = LATER
    """Of `bytes_in`, those from other hosts; where `runtime_known`, as is what follows."""
    gc_s: Floats = LATER
    spilled_bytes: Floats = LATER
    runtime_known: Bools = LATER
    state_rows: Floats = LATER
    """Where `state_known`."""
    state_bytes: Floats
    state_known: Bools = LATER
    """Whether state was measured, also in an interval before."""
    moving: Bools
    known: Bools

    @cached_property
    def rows_by_operator(self) -> tuple[Ints, Ints]:
        """(order, starts): rows sorted by operator and then index, and where each operator begins in them."""
        order = np.lexsort((self.index, self.operator))
        count = int(self.operator.max()) + 2 if len(self) else 1
        return order, np.searchsorted(self.operator[order], np.arange(count))


@dataclass(frozen=True, kw_only=True, eq=False)
class Streams(Table):
    """One row per stream of the dataflow, in its order."""

    records: Floats
    shed: Floats
    """Records that shedding did not keep."""
    bytes: Floats
    remote_bytes: Floats
    """Of `bytes`, those that crossed between nodes."""
    latency_s: Moments
    """From emission to consumption (queueing included)."""
    batch_wait_s: Moments
    """Of that, the wait in an output batch."""
    deadline_s: Floats
    """Longest time a record may wait in an output batch now."""
    keep: Floats
    """Share of records that shedding keeps on this stream, 0..1."""
    known: Bools


@dataclass(frozen=True, kw_only=True, eq=False)
class Traffic(Table):
    """Records and bytes per second between pairs of tasks (rows of `tasks`), where it could be measured."""

    from_task: Ints
    to_task: Ints
    records_rps: Floats
    bytes_per_s: Floats


@dataclass(frozen=True, kw_only=True, eq=False)
class Sources(Table):
    """One row per source."""

    operator: Ints
    produced_rps: Floats
    """Records per second that come into being, read or not."""
    read_rps: Floats
    backlog_records: Floats
    oldest_s: Floats
    """Age of the oldest record not yet processed."""
    keep: Floats
    read_limit: Floats
    """Most records that a batch may read of it now; 0: all there are."""
    own_limit: Floats
    """The limit that the query's owner gave it: no higher one is set; 0: none."""
    limitable: Bools
    """Whether the runtime can set its read limit."""
    backlog_known: Bools
    """Whether `backlog_records` and `oldest_s` are: not every source can tell what waits in it."""
    known: Bools


@dataclass(frozen=True, kw_only=True, eq=False)
class Sinks(Table):
    """One row per sink."""

    operator: Ints
    priority: Ints
    min_accuracy: Floats
    records: Floats
    accuracy: Floats
    """Share of the application's input that counts for the result, 0..1: what shedding lets pass. What waits is late,
    not lost; the backlog of the sources says how much that is."""
    latency_s: Moments
    """From a record's true source time to the moment its result was there."""
    sketch: tuple[Sketch, ...]
    known: Bools

    def quantile_s(self, row: int, q: float) -> float | None:
        """A percentile of the latency at one sink; None without records."""
        return self.sketch[row].quantile(q)


@dataclass(frozen=True, kw_only=True, eq=False)
class Constraints(Table):
    """One row per constraint of the dataflow, in its order."""

    bound_s: Floats
    latency_s: Floats
    """The constrained statistic over the constraint's window; only where `known`."""
    at_least: Bools
    """True while records are under way that are already later than those that arrived: the latency will be more."""
    known: Bools

    @property
    def held(self) -> Bools:
        """Where the bound was kept; what was not measured was neither held nor missed."""
        return np.asarray(self.known & (self.latency_s <= self.bound_s))

    @property
    def missed(self) -> Bools:
        """Where the bound was broken."""
        return np.asarray(self.known & (self.latency_s > self.bound_s))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Batches:
    """The micro-batches that ended in the interval, where the runtime works in batches; oldest first."""

    id: Ints
    records: Floats
    duration_s: Floats
    fixed_s: Floats
    """The part that does not depend on the number of records: planning, log, commit."""
    busy_s: Floats
    """Core-seconds for which operators were at work on the records; NaN where that is not measured."""
    interval_s: float
    """Shortest time between two batches of the first query now (0: one right after the other); see `Queries`."""
    query: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    """Row in `Snapshot.queries`; 0 where not given."""
    task_core_s: Floats = field(default_factory=lambda: np.zeros(0))
    """Core-seconds that tasks took however few records they had; 0 where that is not measured."""

    def __post_init__(self) -> None:
        if len(self.task_core_s) == 0:
            object.__setattr__(self, "task_core_s", np.zeros(len(self.id)))
        if len(self.query) == 0:
            object.__setattr__(self, "query", np.zeros(len(self.id), np.int64))
        if len(self.query) != len(self.id):
            raise ValueError(f"{len(self.id)} batches with the queries of {len(self.query)}")

    def __len__(self) -> int:
        return len(self.id)

    def of_query(self, row: int, interval_s: float | None = None) -> Batches:
        """Those of one query, whose interval is `interval_s` if given."""
        mine = self.rows(self.query == row)
        return mine if interval_s is None else replace(mine, interval_s=interval_s)

    def rows(self, chosen: Bools) -> Batches:
        """Those that are chosen."""
        return Batches(
            id=self.id[chosen],
            records=self.records[chosen],
            duration_s=self.duration_s[chosen],
            fixed_s=self.fixed_s[chosen],
            busy_s=self.busy_s[chosen],
            interval_s=self.interval_s,
            query=self.query[chosen],
            task_core_s=self.task_core_s[chosen],
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class Queries(Table):
    """One row per query of the application, where the runtime works in micro-batches.

    While a batch runs there is nothing new of those that ended: these figures say how far it is.
    """

    names: tuple[str, ...]
    first_operator: Ints
    last_operator: Ints
    """A query's operators are the rows from the first to this one of the dataflow."""
    interval_s: Floats
    """Shortest time between two batches now (0: one right after the other); only where `interval_known`."""
    interval_known: Bools
    own_interval_s: Floats
    """The interval that its owner gave it: no shorter one is set."""
    paceable: Bools
    """Whether the runtime can set the interval."""
    running_s: Floats
    """How long the batch under way has run; 0: none runs."""
    running_records: Floats
    """Records of the batch under way; only where `records_known`."""
    records_known: Bools
    tasks_done: Floats
    """Share of the tasks of the jobs of the batch under way that have ended, 0..1; only where `tasks_known`."""
    tasks_known: Bools
    last_batch: Ints
    """Id of the last batch that has ended; -1: none has."""
    last_end_s: Floats
    """When it ended, in snapshot time."""
    active: Bools
    """False for a query that was stopped a moment ago and may come back under the same name."""
    age_s: Floats
    """How old the figures of this query are."""
    known: Bools
    """False where they are older than they may be: then nothing of this query is known in this snapshot."""

    def of_operators(self, rows: Ints) -> Ints:
        """Row of the query that each operator (a row of the dataflow) belongs to."""
        return np.searchsorted(self.last_operator, rows)


@dataclass(frozen=True, kw_only=True, eq=False)
class Snapshot:
    """The facts of one interval that ends at `time_s`. `seed` is the only chance a policy may use."""

    time_s: float
    interval_s: float
    dataflow: Dataflow
    nodes: Nodes
    operators: Operators
    alternates: Alternates
    tasks: Tasks
    streams: Streams
    sources: Sources
    sinks: Sinks
    constraints: Constraints
    traffic: Traffic = field(default_factory=lambda: Traffic.blank(0))
    classes: tuple[MachineClass, ...] = ()
    batches: Batches | None = None
    queries: Queries = field(default_factory=lambda: Queries.blank(0))
    cost: float = 0.0
    """Money spent since the start."""
    seed: int = 0
    warnings: tuple[str, ...] = ()
    """What could not be measured, in words."""
    every_s: float = 0.0
    """The loop's own interval: how often there is a snapshot, late ones aside; 0 outside a loop."""
    pause_factor: float = 1.0
    """How long moves of state paused batches, over what was expected of them, as measured lately."""

    @property
    def step_s(self) -> float:
        """The step of series with a value per snapshot."""
        return self.every_s or max(self.interval_s, 1e-3)

    @cached_property
    def by_operator(self) -> OperatorView:
        """Sums and merged summaries per operator."""
        return OperatorView.of(self)

    @cached_property
    def node_cpu(self) -> Floats:
        """Cores that tasks use, per node, from the tasks' own figures."""
        placed = self.tasks.node >= 0
        return totals(self.tasks.node[placed], self.tasks.cpu[placed], len(self.nodes))

    @property
    def free_cpu(self) -> Floats:
        """Cores of reference speed that tasks can have, per node: all, less what others and we beside our tasks use.

        A node that was not measured limits nothing.
        """
        nodes = self.nodes
        beside = np.clip(nodes.own_cpu - self.node_cpu, 0.0, None)
        speed = np.where(nodes.speed > 0, nodes.speed, 1.0)
        return np.where(nodes.known, np.clip(nodes.available_cpu - beside, 0.0, None) * speed, np.inf)

    @cached_property
    def constraint_queries(self) -> Ints:
        """Row in `queries` of the query that each constraint is about; 0 for all where there are no queries."""
        flow = self.dataflow
        firsts = [flow.row[c.sequence.operators[0]] for c in flow.constraints]
        return self.queries.of_operators(np.array(firsts, np.int64))

    @cached_property
    def query_names(self) -> tuple[str, ...]:
        """Name of the query that each operator belongs to; without queries, of its part of the dataflow."""
        if not len(self.queries):
            return self.dataflow.query_names
        rows = self.queries.of_operators(np.arange(len(self.dataflow.operators)))
        return tuple(self.queries.names[row] for row in np.minimum(rows, len(self.queries) - 1))

    def task_id(self, row: int) -> str:
        """`operator[index]` of a task's row."""
        return f"{self.dataflow.operators[self.tasks.operator[row]].id}[{self.tasks.index[row]}]"
