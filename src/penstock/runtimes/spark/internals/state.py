"""Where the state partitions of a running query live, and moving them.

The driver's state store coordinator remembers which executor holds each partition; the next micro-batch
prefers to run there. Telling it another executor makes the next micro-batch run there, and Spark restores
the state from the checkpoint.
"""

from dataclasses import dataclass
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from penstock.runtimes.spark.internals.errors import SparkInternalsError, reaching
from penstock.runtimes.spark.internals.gateway import context, execution, jvm, plan_nodes

CAPABILITY = "state moves"

_STATE_WRITERS: dict[str, bool] = {}
"""Class of physical node to whether it writes state: a property of the Spark that is installed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StateOperator:
    """One stateful operator of a query's physical plan."""

    id: int
    node_name: str
    partitions: int
    stores: tuple[str, ...]
    checkpoint: str


class StatePartitions:
    """The state partitions of one run of *query*; a restarted query needs a new one.

    The operators are read once, after the first micro-batch; they stay the same for the whole run. A
    task reports its own executor when it opens its store, so a move issued while a batch runs may be
    overwritten: move right after a batch has ended, look with `where`, repeat what did not stick.
    """

    def __init__(self, spark: SparkSession, query: StreamingQuery) -> None:
        self._query = query
        self._operators: dict[int, StateOperator] | None = None
        self._ids: dict[tuple[int, int, str], Any] = {}
        with reaching(CAPABILITY):
            view = jvm(spark)
            self._types = view.org.apache.spark.sql.execution.streaming.state
            self._coordinator = spark._jsparkSession.streams().stateStoreCoordinator()
            self._run = view.java.util.UUID.fromString(str(query.runId))
            self._nobody = view.PythonUtils.toSeq([])
            self._conf = context(spark).conf()

    def operators(self) -> tuple[StateOperator, ...]:
        """Return the stateful operators by id; none before the first micro-batch was planned."""
        if self._operators is None:
            with reaching(CAPABILITY):
                last = execution(self._query).lastExecution()
                if last is None:
                    return ()
                self._operators = {found.id: found for found in self._stateful(last.executedPlan())}
        return tuple(self._operators[key] for key in sorted(self._operators))

    def where(self, operator_id: int) -> dict[int, str | None]:
        """Return the executor of each partition of the operator, None while nobody has opened it."""
        operator = self._operator(operator_id)
        with reaching(CAPABILITY):
            found: dict[int, str | None] = {}
            for partition in range(operator.partitions):
                location = self._coordinator.getLocation(self._id(operator, partition, operator.stores[0]))
                # "executor_<host>_<id>", and a host may hold underscores
                found[partition] = location.get().rsplit("_", 1)[1] if location.isDefined() else None
            return found

    def move(self, operator_id: int, partition: int, *, host: str, executor: str) -> None:
        """Make the next micro-batch run the partition, with all stores of the operator, on *executor*."""
        operator = self._operator(operator_id)
        if not 0 <= partition < operator.partitions:
            raise SparkInternalsError(
                CAPABILITY, f"operator {operator_id} has {operator.partitions} partitions, not a {partition}"
            )
        with reaching(CAPABILITY):
            for store in operator.stores:
                store_id = self._id(operator, partition, store)
                self._coordinator.reportActiveInstance(store_id, host, executor, self._nobody)

    def wait_for_places(self, wait_s: float) -> None:
        """Let a task wait that long for the executor that holds its state, from the next stage on.

        A wait shorter than a task sends it elsewhere whenever its executor is busy, and undoes a move.
        """
        with reaching(CAPABILITY):
            self._conf.set("spark.locality.wait", f"{round(1e3 * wait_s)}ms")

    def _operator(self, operator_id: int) -> StateOperator:
        known = {operator.id: operator for operator in self.operators()}
        if operator_id not in known:
            names = sorted(known) or "none, or none before the first micro-batch"
            raise SparkInternalsError(CAPABILITY, f"no stateful operator {operator_id}; known: {names}")
        return known[operator_id]

    def _id(self, operator: StateOperator, partition: int, store: str) -> Any:
        key = operator.id, partition, store
        if key not in self._ids:
            place = self._types.StateStoreId(operator.checkpoint, operator.id, partition, store)
            self._ids[key] = self._types.StateStoreProviderId(place, self._run)
        return self._ids[key]

    def _stateful(self, plan: Any) -> list[StateOperator]:
        """Return the state writers of *plan*; readers share their writer's id and have no store names."""
        found = []
        for node in plan_nodes(plan):
            if not writes_state(node):
                continue
            info, names = node.stateInfo(), node.stateStoreNames()
            if info.isDefined():
                found.append(
                    StateOperator(
                        id=int(info.get().operatorId()),
                        node_name=node.nodeName(),
                        partitions=int(info.get().numPartitions()),
                        stores=tuple(names.apply(i) for i in range(names.size())),
                        checkpoint=info.get().checkpointLocation(),
                    )
                )
        return found


def writes_state(node: Any) -> bool:
    """Tell whether a node of a plan does, by its traits' simple names: their package changed between Sparks."""
    kind = node.getClass()
    name = str(kind.getName())
    if name not in _STATE_WRITERS:
        # Few calls: asking for the methods of a class takes seconds.
        todo, traits = [kind], set()
        while todo:
            one = todo.pop()
            if one is not None and one.getSimpleName() not in traits:
                traits.add(str(one.getSimpleName()))
                todo += [*one.getInterfaces(), one.getSuperclass()]
        _STATE_WRITERS[name] = "StateStoreWriter" in traits
    return _STATE_WRITERS[name]
