"""The default: nodes where the runtime works in micro-batches, tasks per operator where it can change those."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace

from penstock.policies.elasticity.node_memory import NodeMemory
from penstock.policies.elasticity.nodes import NodeElasticity
from penstock.policies.elasticity.options import ElasticityOptions, NodeOptions
from penstock.policies.elasticity.tasks import Proactive, ProactiveMemory
from penstock.policies.policy import Proposal
from penstock.telemetry import Snapshot


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ElasticityMemory:
    """The memories of both forms; a runtime fills one of them."""

    nodes: NodeMemory = field(default_factory=NodeMemory)
    tasks: ProactiveMemory = field(default_factory=ProactiveMemory)


class Elasticity:
    """As few resources as hold every latency constraint, in the unit that the runtime can change."""

    name = "elasticity"
    options_type = ElasticityOptions
    follows_queries = True
    """What is learnt of one query stays when others come or go."""

    def start(self, options: NodeOptions) -> ElasticityMemory:
        """Nothing learnt yet."""
        return ElasticityMemory()

    def decide(
        self, snapshot: Snapshot, memory: ElasticityMemory, options: NodeOptions
    ) -> tuple[Proposal, ElasticityMemory]:
        """What the form that fits the snapshot decides."""
        if snapshot.batches is not None or not snapshot.operators.elastic.any():
            proposal, nodes = NodeElasticity().decide(snapshot, memory.nodes, options)
            return proposal, replace(memory, nodes=nodes)
        proposal, tasks = Proactive().decide(snapshot, memory.tasks, _full(options))
        return proposal, replace(memory, tasks=tasks)


def _full(options: NodeOptions) -> ElasticityOptions:
    if isinstance(options, ElasticityOptions):
        return options
    return ElasticityOptions(**{f.name: getattr(options, f.name) for f in fields(options)})
