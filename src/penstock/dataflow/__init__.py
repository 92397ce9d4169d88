"""What users declare: the graph, alternates, goals; in Python or in a file."""

from penstock.dataflow.applications import applications, together
from penstock.dataflow.builder import FlowBuilder, Output, alternate, flow
from penstock.dataflow.errors import DataflowError
from penstock.dataflow.graph import (
    Alternate,
    Connector,
    Constraint,
    Dataflow,
    Function,
    FunctionNotFoundError,
    Goals,
    Operator,
    OperatorId,
    Parallelism,
    Sequence,
    State,
    Stream,
)
from penstock.dataflow.load import Load, LoadError, bursts, constant, random_walk, read_trace, sine, staircase
from penstock.dataflow.validation import problems

__all__ = [
    "Alternate",
    "Connector",
    "Constraint",
    "Dataflow",
    "DataflowError",
    "FlowBuilder",
    "Function",
    "FunctionNotFoundError",
    "Goals",
    "Load",
    "LoadError",
    "Operator",
    "OperatorId",
    "Output",
    "Parallelism",
    "Sequence",
    "State",
    "Stream",
    "alternate",
    "applications",
    "bursts",
    "constant",
    "flow",
    "problems",
    "random_walk",
    "read_trace",
    "sine",
    "staircase",
    "together",
]
