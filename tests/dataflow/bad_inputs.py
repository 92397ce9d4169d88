"""Kinds of bad input: a YAML text each, and what the message must say. The command line's tests use them too."""

from __future__ import annotations

from dataclasses import dataclass

VALID = """\
name: small
operators:
  numbers:
    kind: source
    connector:
      kind: replay
      schema: n long, topic string
      load: {kind: staircase, steps: [[60, 100], [60, 300]]}
  work:
    kind: map
    inputs: [numbers]
    cost_s: 0.001
    parallelism: [1, 8]
  judge:
    kind: map
    inputs: [{from: work, wiring: spread}]
    alternates:
      - {name: full, value: 1.0, cost_s: 0.002}
      - {name: quick, value: 0.7, cost_s: 0.0002, selectivity: 0.5}
    keep_by: n
  count:
    kind: keyed
    inputs: [judge]
    key: topic
    state: total long
    schema: topic string, total long
  out:
    kind: sink
    inputs: [count]
    connector: {kind: memory, table: results}
    priority: 2
    min_accuracy: 0.5
constraints:
  - {sequence: work -> judge, mean_ms: 30, window_s: 5}
goals: {budget_per_hour: 3.0, throughput: 0.8}
"""


@dataclass(frozen=True, slots=True)
class BadInput:
    """A text that must be refused, with a fragment of the message."""

    name: str
    text: str
    expected: str


def _changed(name: str, old: str, new: str, expected: str) -> BadInput:
    assert VALID.count(old) == 1, (name, old)
    return BadInput(name, VALID.replace(old, new), expected)


_SOURCE = "  numbers:\n    kind: source\n"
_CONSTRAINT = "{sequence: work -> judge, mean_ms: 30, window_s: 5}"
_LOAD = "{kind: staircase, steps: [[60, 100], [60, 300]]}"
_SINK = "{kind: memory, table: results}"
_WORK = "    inputs: [numbers]\n"

BAD_INPUTS = (
    # The text
    BadInput("empty file", "", "is empty"),
    BadInput("only a comment", "# nothing\n", "is empty"),
    BadInput("not YAML", "name: [a\noperators: }", "is not YAML"),
    BadInput("not a mapping", "- a\n- b\n", "must be a mapping"),
    BadInput("two documents", VALID + "---\n" + VALID, "more than one document"),
    BadInput("a key twice", VALID + "name: again\n", "key 'name' is there twice"),
    BadInput("a tag", "name: !!python/name:os.system x\n", "tag"),
    BadInput("an unknown alias", "name: *nothing\n", "stands for nothing"),
    BadInput("a key that is no text", "? [a]\n: b\n", "a key must be a text"),
    BadInput("a huge number", "name: 99999999999999999999\n", "too large"),
    BadInput("nested too deeply", "[" * 500 + "]" * 500, "nested more than"),
    BadInput("an alias bomb", "\n".join(
        ["a0: &a0 [x, x, x]", *(f"a{i}: &a{i} [*a{i - 1}, *a{i - 1}, *a{i - 1}]" for i in range(1, 15))]
    ), "more than 200000 values"),
    # Keys and types
    _changed("unknown key of the file", "goals:", "gaols:",
             "gaols: is not a known key; did you mean 'goals'?"),
    _changed("unknown key of an operator", "parallelism:", "paralelism:",
             "operators.work.paralelism: is not a known key; did you mean 'parallelism'?"),
    _changed("unknown key of an alternate", "selectivity: 0.5", "slectivity: 0.5",
             "operators.judge.alternates[1].slectivity: is not a known key; did you mean 'selectivity'?"),
    _changed("unknown key of a load", "steps:", "stepps:", "did you mean 'steps'?"),
    _changed("unknown key of a constraint", "window_s:", "windows:", "did you mean 'window_s'?"),
    BadInput("no name", VALID.replace("name: small\n", ""), "name: is required"),
    BadInput("no operators", "name: small\n", "operators: is required"),
    BadInput("empty operators", "name: small\noperators: {}\n", "there is no source"),
    _changed("text for a number", "cost_s: 0.001", "cost_s: cheap", "must be a number (got 'cheap')"),
    _changed("quoted number", "cost_s: 0.001", "cost_s: '0.001'", "must be a number (got '0.001')"),
    _changed("truth for a number", "cost_s: 0.001", "cost_s: true", "must be a number"),
    _changed("inputs that are no list", _WORK, "    inputs: numbers\n",
             "operators.work.inputs: must be a list"),
    _changed("broken number of tasks", "[1, 8]", "[1.5, 8]", "must be a whole number (got 1.5)"),
    _changed("an operator that is no mapping", _SOURCE, "  numbers: 5\n  other:\n    kind: source\n",
             "operators.numbers: must be a mapping"),
    # Names
    _changed("a bad name", "name: small", "name: so small", "must be letters, digits"),
    _changed("an empty name", "name: small", "name: ''", "must be letters, digits"),
    BadInput("a bad operator id", VALID.replace("numbers", "2nd/one"), "operators.2nd/one: must be letters"),
    _changed("an unknown kind of operator", "kind: keyed", "kind: keyd", "did you mean 'keyed'?"),
    # The graph
    BadInput("a cycle", VALID.replace("inputs: [numbers]", "inputs: [numbers, judge]"),
             "there is a cycle: work -> judge -> work"),
    BadInput("reads itself", VALID.replace("inputs: [numbers]", "inputs: [numbers, work]"),
             "there is a cycle: work -> work"),
    _changed("a dangling stream", "inputs: [numbers]", "inputs: [nubmers]",
             "there is no operator 'nubmers'; did you mean 'numbers'?"),
    _changed("an operator that nothing reaches", _WORK, "", "a map needs at least one; nothing reaches it"),
    BadInput("an operator that nothing reads", VALID.replace(
        "  out:\n", "  idle: {kind: map, inputs: [work]}\n  out:\n"), "operators.idle: nothing reads it"),
    _changed("a source with inputs", _SOURCE, _SOURCE + "    inputs: [work]\n", "a source has no inputs"),
    BadInput("a sink with a reader", VALID.replace(
        "constraints:", "  more: {kind: sink, inputs: [out], connector: {kind: discard}}\nconstraints:"),
        "'out' is a sink; nothing leaves it"),
    BadInput("no source", VALID.replace("kind: source", "kind: map"), "there is no source"),
    BadInput("no sink", VALID.replace("kind: sink", "kind: map"), "there is no sink"),
    _changed("a union of one", "kind: map\n    inputs: [numbers]\n    cost_s: 0.001",
             "kind: union\n    inputs: [numbers]", "a union needs at least two (got 1)"),
    BadInput("a union of different columns", VALID.replace(
        "  work:\n    kind: map\n    inputs: [numbers]\n    cost_s: 0.001",
        "  other: {kind: source, connector: {kind: rate, rows_per_second: 5}}\n"
        "  work:\n    kind: union\n    inputs: [numbers, other]"), "a union's inputs need the same columns"),
    _changed("the same input twice", "inputs: [numbers]", "inputs: [numbers, numbers]",
             "'numbers' is there 2 times"),
    _changed("an unknown wiring", "wiring: spread", "wiring: spray", "did you mean 'spread'?"),
    _changed("wired by key without a key", "wiring: spread", "wiring: key",
             "is by key, but 'judge' has no key"),
    _changed("a keyed operator wired otherwise", "inputs: [judge]",
             "inputs: [{from: judge, wiring: forward}]",
             "a keyed operator is wired by key"),
    # Operators
    _changed("a negative cost", "cost_s: 0.001", "cost_s: -1",
             "operators.work.cost_s: must not be negative (got -1)"),
    _changed("a cost that is no number", "cost_s: 0.001", "cost_s: .nan",
             "must be a finite number (got nan)"),
    _changed("an infinite cost", "cost_s: 0.002", "cost_s: .inf",
             "operators.judge.alternates[0].cost_s: must be a finite number (got inf)"),
    _changed("a negative selectivity", "selectivity: 0.5", "selectivity: -0.5",
             "operators.judge.alternates[1].selectivity: must not be negative"),
    _changed("a value of zero", "value: 0.7", "value: 0",
             "operators.judge.alternates[1].value: must be above 0"),
    _changed("a value above one", "value: 1.0", "value: 1.2", "must be at most 1 (got 1.2)"),
    _changed("an alternate twice", "name: quick", "name: full", "'full' is declared 2 times"),
    BadInput("no alternate", VALID.replace("""
      - {name: full, value: 1.0, cost_s: 0.002}
      - {name: quick, value: 0.7, cost_s: 0.0002, selectivity: 0.5}
""", " []\n"), "operators.judge.alternates: must have at least one"),
    _changed("costs beside alternates", "    alternates:\n", "    cost_s: 1\n    alternates:\n",
             "cost_s belong into the alternates"),
    _changed("minimum above maximum", "[1, 8]", "[8, 1]", "minimum 8 is above maximum 1"),
    _changed("no tasks at all", "[1, 8]", "0",
             "operators.work.parallelism.minimum: must be at least 1 (got 0)"),
    _changed("too many tasks", "[1, 8]", "[1, 10000000]", "must be at most 1000000 (got 10000000)"),
    _changed("a start outside the bounds", "[1, 8]", "[1, 8, 9]", "9 is not within 1..8"),
    _changed("keyed without a key", "    key: topic\n", "", "a keyed operator needs the columns of its key"),
    _changed("keyed without state", "    state: total long\n", "",
             "a keyed operator needs the columns of its state"),
    _changed("state of a map", "    keep_by: n\n", "    state: x long\n",
             "operators.judge.state: is not for a map"),
    _changed("a key that does not arrive", "key: topic", "key: topc", "did you mean 'topic'?"),
    _changed("keep by a column that is not there", "keep_by: n", "keep_by: m",
             "no column 'm' comes from 'judge'"),
    _changed("a bad type of column", "total long\n    schema", "total lnog\n    schema",
             "did you mean 'long'?"),
    _changed("a column without a type", "schema: n long,", "schema: n,", "write 'name type'"),
    _changed("a column twice", "n long, topic string", "n long, N string", "column 'N' is there twice"),
    _changed("an open bracket", "n long, topic string", "n long, topic array<string", "'>' is missing"),
    _changed("a bad function", "    keep_by: n\n", "    utility: not a function\n", "form 'module:name'"),
    _changed("an unknown form of rows", "    keep_by: n\n", "    takes: polars\n",
             "must be one of arrow, pandas, record"),
    _changed("a negative record size", "    keep_by: n\n", "    record_bytes: -3\n",
             "record_bytes: must not be negative"),
    _changed("priority of a map", "    keep_by: n\n", "    priority: 3\n",
             "operators.judge.priority: is not for a map"),
    _changed("an accuracy above one", "min_accuracy: 0.5", "min_accuracy: 1.5",
             "must be at most 1 (got 1.5)"),
    _changed("a negative accuracy", "min_accuracy: 0.5", "min_accuracy: -0.1",
             "min_accuracy: must not be negative"),
    # Connectors and loads
    _changed("a sink without a connector", f"    connector: {_SINK}\n", "", "a sink needs one"),
    _changed("an unknown connector", "kind: memory", "kind: memroy", "did you mean 'memory'?"),
    _changed("a source's connector in a sink", _SINK, "{kind: rate, rows_per_second: 3}",
             "'rate' is no kind of sink"),
    _changed("a missing option", ", table: results", "", "operators.out.connector.table: is required"),
    _changed("an unknown option", "table: results", "table: results, tabel: x", "did you mean 'table'?"),
    _changed("an option of the wrong type", "table: results", "table: 3",
             "must be a text that is not empty (got 3)"),
    _changed("an option that is a list", "table: results", "table: [a]",
             "must be a text, a number, true or false"),
    _changed("an option out of range", _SINK, "{kind: console, rows: 0}", "rows: must be above 0 (got 0)"),
    _changed("an option of no choice", _SINK, "{kind: files, path: x, format: exel}",
             "must be one of csv, json"),
    _changed("a DataFrame in a file", "kind: replay", "kind: dataframe", "can only be given in Python"),
    _changed("a function where none goes", _SINK, "{kind: discard, function: 'a:b'}",
             "function: is not for a discard sink"),
    _changed("no function where one must be", _SINK, "{kind: foreach-batch}", "function: is required"),
    _changed("a replay without a load", f"      load: {_LOAD}\n", "",
             "load: is required for a replay source"),
    _changed("an unknown load", "kind: staircase", "kind: ladder",
             "(got 'ladder')"),
    _changed("a load that is a text", _LOAD, "fast", "must be a rate, or points, or of a kind"),
    _changed("a negative rate", "[60, 300]", "[60, -300]", "a rate cannot be negative: -300"),
    _changed("a rate that is no number", "[60, 300]", "[60, .nan]", "must be a finite number (got nan)"),
    _changed("a step without a rate", "[60, 300]", "[60]", "steps[1]: has too few parts"),
    _changed("a step that takes no time", "[60, 300]", "[0, 300]", "lasts more than 0 s"),
    _changed("times out of order", _LOAD, "{times: [0, 9, 5], rates: [1, 2, 3]}", "must increase"),
    _changed("more times than rates", _LOAD, "{times: [0, 9], rates: [1]}", "as many rates as times"),
    _changed("a load without end of changes", _LOAD,
             "{kind: random-walk, mean_rps: 1, duration_s: 1.0e+300}", "would change"),
    _changed("a trace that is not there", _LOAD, "{kind: trace, path: nowhere.csv}",
             "cannot read rate trace"),
    # Constraints and goals
    _changed("an empty sequence", "work -> judge", "''", "is empty"),
    _changed("an arrow to nothing", "work -> judge", "work -> -> judge", "arrow without an operator"),
    _changed("a sequence with an unknown operator", "work -> judge", "work -> jugde",
             "did you mean 'judge'?"),
    _changed("a sequence that is not connected", "work -> judge", "work -> count",
             "no stream from 'work' to 'count'"),
    _changed("a sequence before the beginning", "work -> judge", "-> numbers",
             "nothing flows into 'numbers'"),
    _changed("a sequence past the end", "work -> judge", "out ->", "nothing leaves 'out'"),
    _changed("a constraint without a bound", "mean_ms: 30, ", "", "needs exactly one of mean_ms"),
    _changed("a constraint with two bounds", "mean_ms: 30", "mean_ms: 30, p95_ms: 60",
             "needs exactly one of mean_ms"),
    _changed("a bound of zero", "mean_ms: 30", "mean_ms: 0",
             "constraints[0].mean_ms: must be above 0 (got 0)"),
    _changed("a negative window", "window_s: 5", "window_s: -5", "constraints[0].window_s: must be above 0"),
    _changed("two constraints of one name", f"  - {_CONSTRAINT}\n", f"  - {_CONSTRAINT}\n" * 2,
             "2 constraints are called"),
    _changed("no budget", "budget_per_hour: 3.0", "budget_per_hour: 0",
             "goals.budget_per_hour: must be above 0"),
    _changed("a throughput above one", "throughput: 0.8", "throughput: 8",
             "goals.throughput: must be at most 1"),
    _changed("an unknown remedy", "throughput: 0.8", "remedies: [pray]",
             "must be one of move, switch, scale, shed"),
    _changed("a remedy twice", "throughput: 0.8", "remedies: [move, move]", "'move' is there twice"),
)  # fmt: skip
