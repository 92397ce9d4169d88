"""A dataflow by reference: a YAML file, or a Python file with a `flow` in it."""

from __future__ import annotations

import sys
import traceback
from pathlib import Path
from types import CodeType, ModuleType

from penstock.dataflow.builder import FlowBuilder
from penstock.dataflow.errors import DataflowError, Problem
from penstock.dataflow.flow_file import read_dataflow
from penstock.dataflow.graph import Dataflow
from penstock.dataflow.validation import problems


def load_flow(reference: str | Path) -> Dataflow:
    """The valid dataflow that a `.yaml`, `.yml` or `.py` file declares; every failure is a DataflowError."""
    suffix = Path(reference).suffix.lower()
    if suffix in (".yaml", ".yml"):
        return read_dataflow(reference)
    if suffix == ".py":
        return _flow_of_program(Path(reference))
    raise _error(reference, "is neither a YAML file (.yaml, .yml) nor a Python file (.py)")


def _flow_of_program(path: Path) -> Dataflow:
    try:
        code = compile(path.read_bytes(), str(path), "exec")
    except OSError as problem:
        raise _error(path, f"cannot be read: {problem.strerror or problem}") from None
    except SyntaxError as problem:
        raise _error(path, f"is not Python: {problem.msg}", problem.lineno) from None
    except ValueError as problem:  # null bytes, or a path that cannot be one
        raise _error(path, f"is not Python: {problem}") from None
    names = vars(_run(code, path))
    if "flow" not in names:
        raise _error(path, "has no 'flow'; name the dataflow, or the builder, so")
    flow = names["flow"]
    if isinstance(flow, FlowBuilder):
        try:
            return flow.build()
        except DataflowError as error:
            raise DataflowError(error.problems, origin=str(path)) from None
    if not isinstance(flow, Dataflow):
        raise _error(path, f"'flow' must be a Dataflow or a FlowBuilder, not a {type(flow).__name__}")
    if found := problems(flow):
        raise DataflowError(found, origin=str(path))
    return flow


def _run(code: CodeType, path: Path) -> ModuleType:
    """The module that running the file makes.

    It is known by its name only while it runs: dataclasses look it up then, but pickling must find no such module
    later, so that the file's functions travel to Spark's workers by value, as those of a main program do.
    """
    module = ModuleType(f"_penstock_flow_{path.stem}")
    module.__file__ = str(path)
    sys.modules[module.__name__] = module
    sys.path.insert(0, str(path.parent))
    try:
        exec(code, vars(module))
    except DataflowError as error:
        raise DataflowError(error.problems, origin=str(path)) from None
    except (Exception, SystemExit) as problem:  # the user's program may fail in any way
        lines = [f.lineno for f in traceback.extract_tb(problem.__traceback__) if f.filename == str(path)]
        reason = " ".join(f"{type(problem).__name__}: {problem}".split())
        raise _error(path, f"failed: {reason}", lines[-1] if lines else None) from problem
    finally:
        if str(path.parent) in sys.path:  # the program may have changed it
            sys.path.remove(str(path.parent))
        sys.modules.pop(module.__name__, None)
    return module


def _error(path: str | Path, message: str, line: int | None = None) -> DataflowError:
    return DataflowError([Problem(place="", message=message, line=line)], origin=str(path))
