"""The fidelities of a simulation, which are steered and measured in the same way.

Slots, operator, stream and node rows are those of the layout and of the runtime. A fidelity that is added here must
offer every method that the runtime and the lifecycles of nodes and tasks call; the type checker says which it lacks.
"""

from __future__ import annotations

from penstock.simulator.discrete import DiscreteEngine
from penstock.simulator.fluid import FluidEngine

Engine = DiscreteEngine | FluidEngine
