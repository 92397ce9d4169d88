"""Where the state partitions of a running query live, and moving them.

The driver's state store coordinator remembers which executor holds each partition; the next micro-batch
prefers to run there. Telling it another executor makes the next micro-batch run there, and Spark restores
the state from the checkpoint.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from penstock.spark.internals.errors import SparkInternalsError, reaching
from penstock.spark.internals.gateway import compiled, execution, jvm, lines

CAPABILITY = "state moves"

# Of the stateful nodes those that write: readers share their writer's id and have no store names.
_STATE = """
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.streaming.operators.stateful.StateStoreWriter;
import org.apache.spark.sql.execution.streaming.operators.stateful.StatefulOperatorStateInfo;
import org.apache.spark.sql.execution.streaming.state.StateStoreCoordinatorRef;
import org.apache.spark.sql.execution.streaming.state.StateStoreId;
import org.apache.spark.sql.execution.streaming.state.StateStoreProviderId;

public Object operators(SparkPlan plan) {
    StringBuilder lines = new StringBuilder();
    collect(plan, lines);
    return reply(lines);
}

private static void collect(SparkPlan node, StringBuilder lines) {
    if (node instanceof StateStoreWriter && ((StateStoreWriter) node).stateInfo().isDefined()) {
        StateStoreWriter writer = (StateStoreWriter) node;
        StatefulOperatorStateInfo info = (StatefulOperatorStateInfo) writer.stateInfo().get();
        lines.append(info.operatorId()).append("\\t").append(node.nodeName()).append("\\t")
            .append(info.numPartitions()).append("\\t").append(writer.stateStoreNames().mkString(","))
            .append("\\t").append(info.checkpointLocation()).append("\\n");
    }
    scala.collection.Iterator nodes = below(node);
    while (nodes.hasNext()) collect((SparkPlan) nodes.next(), lines);
}

public Object where(
        StateStoreCoordinatorRef coordinator, String checkpoint, long operator, int partitions, String store,
        java.util.UUID run) {
    StringBuilder lines = new StringBuilder();
    for (int partition = 0; partition < partitions; partition++) {
        StateStoreId id = new StateStoreId(checkpoint, operator, partition, store);
        scala.Option location = coordinator.getLocation(new StateStoreProviderId(id, run));
        lines.append(location.isDefined() ? location.get() : "").append("\\n");
    }
    return reply(lines);
}

public void move(
        StateStoreCoordinatorRef coordinator, String checkpoint, long operator, String stores, String targets,
        java.util.UUID run) {
    scala.collection.immutable.Seq nobody = (scala.collection.immutable.Seq) scala.collection.immutable.Nil$.MODULE$;
    String[] names = stores.split(",");
    String[] each = targets.split("\\n");
    for (int i = 0; i < each.length; i++) {
        String[] one = each[i].split("\\t");
        for (int k = 0; k < names.length; k++) {
            StateStoreId id = new StateStoreId(checkpoint, operator, Integer.parseInt(one[0]), names[k]);
            coordinator.reportActiveInstance(new StateStoreProviderId(id, run), one[1], one[2], nobody);
        }
    }
}
"""


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
        with reaching(CAPABILITY):
            view = jvm(spark)
            self._coordinator = spark._jsparkSession.streams().stateStoreCoordinator()
            self._run = view.java.util.UUID.fromString(str(query.runId))
            self._jvm = readings()

    def operators(self) -> tuple[StateOperator, ...]:
        """Return the stateful operators by id; none before the first micro-batch was planned."""
        if self._operators is None:
            with reaching(CAPABILITY):
                last = execution(self._query).lastExecution()
                if last is None:
                    return ()
                told = lines(self._jvm.operators(last.executedPlan()))
                self._operators = {found.id: found for found in map(_operator, told)}
        return tuple(self._operators[key] for key in sorted(self._operators))

    def where(self, operator_id: int) -> dict[int, str | None]:
        """Return the executor of each partition of the operator, None while nobody has opened it."""
        operator = self._operator(operator_id)
        with reaching(CAPABILITY):
            told = self._jvm.where(
                self._coordinator,
                operator.checkpoint,
                operator.id,
                operator.partitions,
                operator.stores[0],
                self._run,
            )
            # "executor_<host>_<id>", and a host may hold underscores
            return {
                partition: location.rsplit("_", 1)[1] if location else None
                for partition, location in enumerate(lines(told))
            }

    def move(self, operator_id: int, targets: Mapping[int, tuple[str, str]]) -> None:
        """Make the next micro-batch run each partition, with all stores of the operator, on its (host, executor)."""
        operator = self._operator(operator_id)
        unknown = [partition for partition in targets if not 0 <= partition < operator.partitions]
        if unknown:
            raise SparkInternalsError(
                CAPABILITY, f"operator {operator_id} has {operator.partitions} partitions, not a {unknown[0]}"
            )
        if not targets:
            return
        told = "\n".join(
            f"{partition}\t{host}\t{executor}" for partition, (host, executor) in targets.items()
        )
        with reaching(CAPABILITY):
            self._jvm.move(
                self._coordinator,
                operator.checkpoint,
                operator.id,
                ",".join(operator.stores),
                told,
                self._run,
            )

    def _operator(self, operator_id: int) -> StateOperator:
        known = {operator.id: operator for operator in self.operators()}
        if operator_id not in known:
            names = sorted(known) or "none, or none before the first micro-batch"
            raise SparkInternalsError(CAPABILITY, f"no stateful operator {operator_id}; known: {names}")
        return known[operator_id]


def readings() -> Any:
    """Return what reads stateful operators and their places in the driver's JVM, if this Spark has what it needs."""
    return compiled(_STATE)


def _operator(line: str) -> StateOperator:
    number, name, partitions, stores, checkpoint = line.split("\t", 4)
    return StateOperator(
        id=int(number),
        node_name=name,
        partitions=int(partitions),
        stores=tuple(stores.split(",")),
        checkpoint=checkpoint,
    )
