"""Penstock: the autopilot for Spark Structured Streaming.

`attach` holds goals for the queries of a running application; `flow` declares a dataflow, which `run` runs on Spark and
`simulate` in the simulator. What is less often needed is imported from its own module: other loads from
`penstock.dataflow`, the result of a run from `penstock.api.result`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.api.page import serve as serve
    from penstock.api.run import run as run
    from penstock.api.simulate import simulate as simulate
    from penstock.api.whatif import whatif as whatif
    from penstock.dataflow import Dataflow as Dataflow
    from penstock.dataflow import alternate as alternate
    from penstock.dataflow import constant as constant
    from penstock.dataflow import flow as flow
    from penstock.dataflow import staircase as staircase
    from penstock.errors import UserError as UserError
    from penstock.spark import estimate as estimate
    from penstock.spark.attach import attach as attach
    from penstock.spark.frames import alternates as alternates
    from penstock.spark.frames import shed as shed
    from penstock.spark.goals import Goals as Goals

_MODULE_OF = {
    "Dataflow": "penstock.dataflow",
    "Goals": "penstock.spark.goals",
    "UserError": "penstock.errors",
    "alternate": "penstock.dataflow",
    "alternates": "penstock.spark.frames",
    "attach": "penstock.spark.attach",
    "constant": "penstock.dataflow",
    "estimate": "penstock.spark.estimate",
    "flow": "penstock.dataflow",
    "run": "penstock.api.run",
    "serve": "penstock.api.page",
    "shed": "penstock.spark.frames",
    "simulate": "penstock.api.simulate",
    "staircase": "penstock.dataflow",
    "whatif": "penstock.api.whatif",
}
"""The public names, and where each is imported from when it is first asked for: declaring needs no Java."""

__all__ = [*_MODULE_OF]  # all of them are texts


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("penstock")
    if name in _MODULE_OF:
        module = import_module(_MODULE_OF[name])
        return getattr(module, name, module)  # `estimate` is a module itself
    raise AttributeError(f"module 'penstock' has no attribute '{name}'")
