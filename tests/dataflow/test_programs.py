"""Python files with a `flow`: they load, and every way to fail is told without a stack trace."""

from __future__ import annotations

import pickle
import sys
from pathlib import Path

import pytest

from penstock.dataflow import DataflowError
from penstock.dataflow.flow_loader import load_flow

GOOD = """\
from __future__ import annotations
import dataclasses
from penstock.dataflow import constant, flow as new
from penstock.dataflow.connectors import discard, replay

@dataclasses.dataclass
class Setting:
    factor: int = 3

def triple(record):
    return {"n": record["n"] * Setting().factor}

flow = new("from-python")
flow.source("s", replay(load=constant(5), schema="n long")).map("m", triple, takes="record").sink("o", discard())
"""


@pytest.mark.parametrize("end", ["", "flow = flow.build()\n"], ids=["builder", "dataflow"])
def test_a_program_with_a_flow(tmp_path: Path, end: str):
    path = tmp_path / "my_flow.py"
    path.write_text(GOOD + end)
    before = list(sys.path)
    dataflow = load_flow(path)
    assert dataflow.name == "from-python"
    assert sys.path == before
    function = dataflow.operator("m").best.function
    assert function.resolve()({"n": 2}) == {"n": 6}
    # Nobody can import it elsewhere, so it must not travel by name.
    assert function.path is None
    assert not any("my_flow" in name for name in sys.modules)


def test_functions_of_a_program_travel_to_workers_by_value(tmp_path: Path):
    cloudpickle = pytest.importorskip("pyspark.cloudpickle")
    path = tmp_path / "my_flow.py"
    path.write_text(GOOD)
    function = load_flow(path).operator("m").best.function
    assert pickle.loads(cloudpickle.dumps(function)).resolve()({"n": 2}) == {"n": 6}


def test_a_program_imports_its_neighbours(tmp_path: Path):
    (tmp_path / "neighbour_of_flow.py").write_text(GOOD)
    path = tmp_path / "my_flow.py"
    path.write_text("from neighbour_of_flow import flow\n")
    try:
        assert load_flow(path).operator("m").best.function.path == "neighbour_of_flow:triple"
    finally:
        sys.modules.pop("neighbour_of_flow", None)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("def f(:\n", "{path}:1: is not Python: invalid syntax"),
        ("x = 1\n  y = 2\n", "{path}:2: is not Python: unexpected indent"),
        ("x = 1\0\n", "{path}: is not Python"),
        ("a = 1\nb = undefined\n", "{path}:2: failed: NameError: name 'undefined' is not defined"),
        ("import no_such_module\n", "{path}:1: failed: ModuleNotFoundError"),
        ("def f():\n    raise KeyError('x')\nf()\n", "{path}:2: failed: KeyError: 'x'"),
        ("raise SystemExit(3)\n", "{path}:1: failed: SystemExit: 3"),
        ("x = 1\n", "{path}: has no 'flow'"),
        ("flow = 5\n", "{path}: 'flow' must be a Dataflow or a FlowBuilder, not a int"),
        (
            "from penstock.dataflow import flow as new\nflow = new('empty')\n",
            "{path}: operators: there is no source\n{path}: operators: there is no sink",
        ),
        (
            "from penstock.dataflow import flow as new\nflow = new('empty').build()\n",
            "{path}: operators: there is no source",
        ),
        (
            "from penstock.dataflow import Dataflow\nflow = Dataflow(name='empty')\n",
            "{path}: operators: there is no source",
        ),
        (
            "from penstock.dataflow import constant\nconstant(-1)\n",
            "{path}:2: failed: LoadError: a rate cannot be negative: -1",
        ),
    ],
)
def test_failures_are_told(tmp_path: Path, text: str, message: str):
    path = tmp_path / "bad.py"
    path.write_text(text)
    with pytest.raises(DataflowError) as caught:
        load_flow(path)
    assert str(caught.value).startswith(message.format(path=path))
    assert "Traceback" not in str(caught.value)


@pytest.mark.parametrize(
    "name", ["nothing.py", "nothing.yaml", "nothing.yml", "nothing.txt", "nothing", "a\0.py"]
)
def test_what_is_not_there(tmp_path: Path, name: str):
    with pytest.raises(DataflowError, match=r"cannot be read|neither a YAML file|is not Python"):
        load_flow(tmp_path / name)
