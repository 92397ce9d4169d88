"""Files: what is written is read back, what is wrong is told with its place, and nothing crashes the reader."""

from __future__ import annotations

import functools
import re
from pathlib import Path

import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

from penstock.dataflow import (
    Dataflow,
    DataflowError,
    Load,
    bursts,
    constant,
    flow,
    problems,
    random_walk,
    read_trace,
    sine,
    staircase,
)
from penstock.dataflow.connectors import dataframe, discard, foreach_batch, kafka, replay
from penstock.dataflow.flow_file import parse_dataflow, read_dataflow
from penstock.dataflow.yaml_document import MAX_BYTES, MAX_DEPTH, MAX_VALUES, read_document
from tests.dataflow.bad_inputs import BAD_INPUTS, VALID, BadInput
from tests.dataflow.flow_writer import write_dataflow, write_document
from tests.dataflow.strategies import dataflows, loads, yaml_values

REPOSITORY = Path(__file__).resolve().parents[2]
EXAMPLES = sorted((REPOSITORY / "examples" / "flows").glob("*.yaml"))


@given(dataflow=dataflows())
@settings(max_examples=60)
def test_what_is_written_is_read_back_exactly(dataflow: Dataflow):
    text = write_dataflow(dataflow)
    assert parse_dataflow(text) == dataflow
    assert write_dataflow(parse_dataflow(text)) == text


@given(load=loads())
def test_loads_round_trip(load: Load):
    source = replay(load=load)
    builder = flow("f")
    builder.source("s", source).sink("out", discard())
    assert parse_dataflow(write_dataflow(builder.build())).operator("s").connector.load == load


@given(
    data=st.dictionaries(
        st.text(st.characters(blacklist_categories=("Cs",)), max_size=6),
        st.floats(allow_nan=False) | st.integers(-(2**63), 2**63 - 1) | st.booleans() | st.none()
        | st.text(st.characters(blacklist_categories=("Cs",)))
        | st.from_regex(r"[-+]?[0-9.]+([eE][-+]?[0-9]+)?", fullmatch=True)
        | st.sampled_from(["no", "on", "~", "null", "1:30", "0x1f", "2026-01-01", "<<", "=", "*a", "&a", "!t", "- x"]),
    )
)  # fmt: skip
def test_documents_round_trip(data: dict[str, object]):
    assert read_document(write_document(data)).data == data


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_examples_load_and_round_trip(path: Path):
    dataflow = read_dataflow(path)
    assert parse_dataflow(write_dataflow(dataflow)) == dataflow


def test_there_are_examples():
    assert len(EXAMPLES) >= 3


def test_functions_of_the_example_can_be_imported(monkeypatch: pytest.MonkeyPatch):
    dataflow = read_dataflow(REPOSITORY / "examples" / "flows" / "words.yaml")
    monkeypatch.syspath_prepend(REPOSITORY / "examples" / "flows")
    assert problems(dataflow, check_functions=True) == ()
    split, count = (dataflow.operator(name).best.function.resolve() for name in ("split", "count"))
    make = dataflow.operator("lines").connector.function.resolve()
    words = [word for record in make(0, 2).to_pylist() for word in split(record)]
    assert count(("the",), [w for w in words if w["word"] == "the"], (5,)) == (
        [{"word": "the", "total": 8}],
        (8,),
    )


def test_every_way_to_write_a_load_is_what_its_maker_makes(tmp_path: Path):
    (tmp_path / "trace.csv").write_text("timestamp,value\n0,10\n60,20\n")
    for written, made in (
        ("500", constant(500)),
        ("{kind: constant, rate_rps: 500}", constant(500)),
        (
            "{kind: staircase, steps: [[60, 100], [60, 300]], repeat: true}",
            staircase([(60, 100), (60, 300)], repeat=True),
        ),
        ("{kind: sine, mean_rps: 100, amplitude_rps: 50, period_s: 3600}", sine(100, 50, 3600)),
        (
            "{kind: bursts, base_rps: 10, burst_rps: 90, mean_quiet_s: 60, mean_burst_s: 5, duration_s: 360, seed: 1}",
            bursts(10, 90, mean_quiet_s=60, mean_burst_s=5, duration_s=360, seed=1),
        ),
        (
            "{kind: random-walk, mean_rps: 50, duration_s: 4320, spread: 0.5, step_s: 120, seed: 1}",
            random_walk(50, duration_s=4320, spread=0.5, step_s=120, seed=1),
        ),
        (
            "{kind: trace, path: trace.csv, time_scale: 0.1, rate_scale: 2}",
            read_trace(tmp_path / "trace.csv").scaled(time=0.1, rate=2),
        ),
        ("{times: [0, 60], rates: [100, 300], period: 120}", Load((0, 60), (100, 300), 120)),
    ):
        assert _load(written, tmp_path) == made


SMALL = """\
name: f
operators:
  s:
    kind: source
    connector: {connector}
  a.b:
    kind: sink
    inputs: [s]
    connector: {{kind: discard}}
"""


def _load(written: str, base: Path) -> Load:
    text = SMALL.format(connector=f"{{kind: replay, load: {written}}}")
    return parse_dataflow(text, base=base).operator("s").connector.load


def test_a_real_trace_is_read_and_written(shared_data: Path):
    load = _load(f"{{kind: trace, path: {shared_data / 'tweet_volume_AAPL.csv'}}}", Path())
    assert load == read_trace(shared_data / "tweet_volume_AAPL.csv")
    builder = flow("f")
    builder.source("s", replay(load=load)).sink("out", discard())
    assert parse_dataflow(write_dataflow(builder.build())) == builder.build()


@pytest.mark.parametrize("bad", BAD_INPUTS, ids=lambda bad: bad.name)
def test_bad_input_is_refused_with_the_reason(bad: BadInput):
    with pytest.raises(DataflowError) as caught:
        parse_dataflow(bad.text, origin="flow.yaml")
    assert bad.expected in str(caught.value)
    assert all(line.startswith("flow.yaml:") for line in str(caught.value).splitlines())


def test_kinds_of_bad_input_are_many_and_differ():
    assert len({bad.name for bad in BAD_INPUTS}) == len(BAD_INPUTS) >= 40
    parse_dataflow(VALID)


def test_all_problems_at_once_each_with_its_line():
    text = VALID.replace("parallelism: [1, 8]", "parallelism: [8, 1]\n    colour: red").replace(
        "mean_ms: 30", "mean_ms: -30"
    )
    text = text.replace("min_accuracy: 0.5", "min_accuracy: 1.5") + "extra: 1\n"
    with pytest.raises(DataflowError) as caught:
        parse_dataflow(text, origin="flow.yaml")
    lines = text.splitlines()
    for fragment, words in (
        ("operators.work.colour: is not a known key", "colour: red"),
        ("extra: is not a known key", "extra: 1"),
        ("operators.out.min_accuracy: must be at most 1 (got 1.5)", "min_accuracy: 1.5"),
        ("constraints[0].mean_ms: must be above 0 (got -30)", "mean_ms: -30"),
    ):
        number = next(i for i, line in enumerate(lines, start=1) if words in line)
        assert re.search(
            rf"^flow.yaml:{number}:\d+: {re.escape(fragment)}", str(caught.value), re.MULTILINE
        ), fragment


def test_lines_are_found_for_ids_with_dots():
    with pytest.raises(DataflowError) as caught:
        parse_dataflow(SMALL.format(connector="{kind: rate, rows_per_second: 1}") + "    min_accuracy: 2\n")
    assert [(p.place, p.line) for p in caught.value.problems] == [("operators.a.b.min_accuracy", 10)]


def test_relative_paths_start_at_the_file(tmp_path: Path):
    (tmp_path / "rates.csv").write_text("timestamp,value\n0,10\n60,20\n")
    written = "{kind: replay, path: a.csv, load: {kind: trace, path: rates.csv}}"
    (tmp_path / "f.yaml").write_text(SMALL.format(connector=written))
    connector = read_dataflow(tmp_path / "f.yaml").operator("s").connector
    assert connector.options["path"] == str(tmp_path / "a.csv")
    assert connector.load.rates_rps == (10, 20)


def test_a_file_says_as_much_as_a_maker():
    text = SMALL.format(connector="{kind: kafka, topic: t, servers: 'h:1'}")
    assert parse_dataflow(text).operator("s").connector == kafka("t", "h:1")


@pytest.mark.parametrize("name", ["missing.yaml", "", "a\0b.yaml"])
def test_unreadable_files(tmp_path: Path, name: str):
    with pytest.raises(DataflowError, match="cannot be read"):
        read_dataflow(tmp_path / name if name else tmp_path)


class Counter:
    def count(self, rows):
        return rows


@pytest.mark.parametrize(
    "function",
    [lambda rows: rows, Counter().count, functools.partial(Counter.count, None)],
    ids=["lambda", "bound method", "partial"],
)
def test_functions_without_a_name_of_their_own_are_not_written(function):
    builder = flow("f")
    builder.source("s", replay(load=constant(1), generator=function)).map("m", function).sink(
        "o", foreach_batch(function)
    )
    with pytest.raises(DataflowError) as caught:
        write_dataflow(builder.build())
    assert {p.place for p in caught.value.problems} == {
        "operators.s.connector.function",
        "operators.m.function",
        "operators.o.connector.function",
    }
    assert "module:name" in str(caught.value)


def test_dataframes_are_not_written():
    builder = flow("f")
    builder.source("s", dataframe(object())).sink("o", discard())
    with pytest.raises(DataflowError, match="DataFrame cannot be written"):
        write_dataflow(builder.build())


def test_huge_loads_are_not_written():
    builder = flow("f")
    count = MAX_VALUES // 2
    builder.source("s", replay(load=Load(tuple(map(float, range(count))), (1.0,) * count))).sink(
        "o", discard()
    )
    with pytest.raises(DataflowError, match="use a trace"):
        write_dataflow(builder.build())


def _dumped(value: object) -> str:
    return yaml.dump(value, Dumper=getattr(yaml, "CSafeDumper", yaml.SafeDumper), sort_keys=False)


def refused_or_valid(text: str | bytes) -> None:
    """Only a DataflowError comes out, with something to say, or a dataflow that is valid."""
    try:
        told = problems(parse_dataflow(text))
        message = ""
    except DataflowError as error:
        told, message = error.problems, str(error)
    # One line for each problem, and a problem exactly when it was refused.
    assert len(message.splitlines()) == len(told)


@given(text=st.text() | st.binary())
@settings(max_examples=200)
@example("[" * 100_000)
@example("{a: " * 50_000)
@example("- " * 50_000)
@example("\ud800")
@example("a: " + "9" * 10_000)
@example("!!python/object/apply:os.system ['true']")
@example("name: &a [*a]")
@example("\n".join(["a0: &a0 [x, x]", *(f"a{i}: &a{i} [*a{i - 1}, *a{i - 1}]" for i in range(1, 60))]))
def test_fuzzed_text_never_crashes(text: str | bytes):
    refused_or_valid(text)


@given(value=yaml_values())
@settings(max_examples=200)
def test_fuzzed_structures_never_crash(value: object):
    refused_or_valid(_dumped(value))


def _paths(value: object, at: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [at, *(path for key, each in inner for path in _paths(each, (*at, key)))]


DATA = read_document(VALID).data


@given(
    path=st.sampled_from(_paths(DATA)[1:]),
    value=yaml_values(),
    action=st.sampled_from(["set", "drop", "add"]),
)
@settings(max_examples=200)
def test_a_valid_file_with_one_value_changed_never_crashes(
    path: tuple[str | int, ...], value: object, action: str
):
    data = read_document(VALID).data
    parent = data
    for key in path[:-1]:
        parent = parent[key]
    if action == "drop":
        del parent[path[-1]]
    elif action == "add" and isinstance(parent, dict):
        parent["extra"] = value
    else:
        parent[path[-1]] = value
    refused_or_valid(_dumped(data))


@given(data=st.data())
@settings(max_examples=200)
def test_a_valid_file_with_some_characters_changed_never_crashes(data: st.DataObject):
    text = VALID
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(text)))
        cut = data.draw(st.integers(0, 6))
        text = text[:at] + data.draw(st.text("{}[]:,&*!|>-#'\"%@ \n\tab01.", max_size=4)) + text[at + cut :]
    refused_or_valid(text)


def test_limits_are_told():
    for text, words in (
        ("[" * (MAX_DEPTH + 1), "nested more than"),
        ("#" * (MAX_BYTES + 1), "longer than"),
    ):
        with pytest.raises(DataflowError, match=words):
            read_document(text)
