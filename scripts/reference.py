"""Writes `docs/reference/` from the objects themselves: `python -m scripts.reference` (or `make docs`).

`--check` writes nothing and fails when a page differs from what the code says.
"""

from __future__ import annotations

import argparse
import ast
import dataclasses
import inspect
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import groupby
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin

import typer
from typer.models import ArgumentInfo

import penstock_submit
from penstock.api.choices import LOOP, OWN
from penstock.cli import attach
from penstock.cli.app import app
from penstock.control import Settings
from penstock.dataflow import connectors, graph
from penstock.dataflow.checks import hints_of
from penstock.dataflow.flow_file import LOADS, POINTS
from penstock.dataflow.validation import ONLY_FOR
from penstock.policies.reason_catalogue import CATALOGUE
from penstock.web.metrics import FIGURES

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "reference"
MADE = "<!-- Made by `make docs` from the code; do not edit. -->"
PARSERS = {"submit": penstock_submit.parser, "attach": attach.parser}
"""Commands with a parser of their own."""


def pages() -> dict[str, str]:
    """File name to text."""
    makers: dict[str, Callable[[], Iterator[str]]] = {
        "commands.md": commands,
        "policy-options.md": policy_options,
        "reasons.md": reasons,
        "dataflow-file.md": dataflow_file,
        "metrics.md": metrics,
    }
    return {name: "\n".join([MADE, *maker()]).rstrip() + "\n" for name, maker in makers.items()}


def commands() -> Iterator[str]:
    """Every command with its arguments and options."""
    yield "# Commands"
    yield ""
    yield "Exit codes: 0 done; 1 ran, but a goal was missed; 2 bad input. With `--json`, standard output holds one JSON"
    yield "document and nothing else; progress and complaints go to standard error."
    for name, function in _commands(app):
        yield ""
        yield f"## penstock {name}"
        yield ""
        yield _first_paragraph(function)
        yield ""
        parameters = [
            _parameter(p, hints_of(function)[p.name]) for p in inspect.signature(function).parameters.values()
        ]
        if name in PARSERS:
            parser = PARSERS[name]()
            yield f"    {parser.usage}"
            yield ""
            yield from table(("option", "default", "meaning"), _rows(parser))
            continue
        usage = "".join(f" {flags}" for flags, _, _, info in parameters if isinstance(info, ArgumentInfo))
        yield f"    penstock {name}{usage} [OPTIONS]".replace("`", "")
        yield ""
        yield from table(("option", "default", "meaning"), (row[:3] for row in parameters))


def _rows(parser: argparse.ArgumentParser) -> list[tuple[str, str, str]]:
    return [
        (
            f"`{', '.join(a.option_strings)}{f' {a.metavar}' if a.metavar else ''}`"
            if a.option_strings
            else f"`{a.metavar}`",
            "",
            a.help or "",
        )
        for a in parser._actions
        if "-h" not in a.option_strings
    ]


def commands_and_flags() -> dict[str, set[str]]:
    """Every command with the flags it takes."""
    return {
        name: {flag for action in parser()._actions for flag in action.option_strings}
        for name, parser in PARSERS.items()
    } | {
        name: {
            flag
            for p in inspect.signature(function).parameters.values()
            for flag in _parameter(p, hints_of(function)[p.name])[0].strip("`").replace(",", "").split()
            if flag.startswith("-")
        }
        for name, function in _commands(app)
        if name not in PARSERS
    }


def _commands(group: typer.Typer, prefix: str = "") -> Iterator[tuple[str, Callable[..., Any]]]:
    for command in group.registered_commands:
        assert command.callback is not None
        yield prefix + (command.name or command.callback.__name__.replace("_", "-")), command.callback
    for inner in group.registered_groups:
        assert inner.typer_instance is not None
        yield from _commands(inner.typer_instance, f"{prefix}{inner.name} ")


def _parameter(parameter: inspect.Parameter, hint: Any) -> tuple[str, str, str, Any]:
    """Flags, default, meaning and Typer's information."""
    kind, info = get_args(hint)[:2]
    kind = next((k for k in get_args(kind) if k is not type(None)), kind)
    value = info.metavar or parameter.name.upper().strip("_")
    default = parameter.default
    unset = default is None or default is inspect.Parameter.empty or default is False
    shown = "" if unset else f"`{default}`"
    if isinstance(info, ArgumentInfo):
        return f"`{value}`", shown, info.help or "", info
    # In `Annotated`, Typer takes the first flag for the default at first.
    declared = [info.default] if isinstance(info.default, str) else []
    flags = ", ".join([*declared, *(info.param_decls or ())])
    flags = flags or f"--{parameter.name.strip('_').replace('_', '-')}"
    takes = "" if kind is bool else f" {info.metavar or _WORDS.get(kind, 'VALUE')}"
    return f"`{flags}{takes}`", shown, info.help or "", info


_WORDS = {int: "N", float: "NUMBER", str: "TEXT", Path: "PATH"}


def policy_options() -> Iterator[str]:
    """The options of every policy, and of the loop."""
    yield "# Options of policies and of the loop"
    yield ""
    yield 'On the command line `--set POLICY.OPTION=VALUE`, in Python `options={"POLICY.OPTION": value}`.'
    yield f"The loop's own options belong to `{LOOP}`; a part of it has a dot more (`{LOOP}.damping.rest_after_move`)."
    for name, make in OWN.items():
        yield ""
        yield f"## {name}"
        yield ""
        yield from _fields_table(make().options_type, f"{name}.")
    yield ""
    yield f"## {LOOP}"
    yield ""
    yield from _fields_table(Settings, f"{LOOP}.")


def _fields_table(kind: type[Any], prefix: str) -> Iterator[str]:
    yield from table(("option", "default", "meaning"), _field_rows(kind, prefix))


def _field_rows(kind: type[Any], prefix: str) -> Iterator[tuple[str, str, str]]:
    texts = field_texts(kind)
    for field in dataclasses.fields(kind):
        default = field.default if field.default is not dataclasses.MISSING else None
        if field.default_factory is not dataclasses.MISSING:
            default = field.default_factory()
        if dataclasses.is_dataclass(default) and not isinstance(default, type):
            yield from _field_rows(type(default), f"{prefix}{field.name}.")
        else:
            yield f"`{prefix}{field.name}`", f"`{_shown(default)}`", texts.get(field.name, "")


def field_texts(kind: type[Any]) -> dict[str, str]:
    """The text below each field of a dataclass, its parents' included."""
    found: dict[str, str] = {}
    for each in reversed(kind.__mro__):
        if not dataclasses.is_dataclass(each):
            continue
        (tree,) = ast.parse(textwrap.dedent(inspect.getsource(each))).body
        assert isinstance(tree, ast.ClassDef)
        for field, text in zip(tree.body, tree.body[1:], strict=False):
            if (
                isinstance(field, ast.AnnAssign)
                and isinstance(field.target, ast.Name)
                and isinstance(text, ast.Expr)
                and isinstance(text.value, ast.Constant)
            ):
                found[field.target.id] = " ".join(str(text.value.value).split())
    return found


def reasons() -> Iterator[str]:
    """Every reason that can stand behind a decision."""
    yield "# Reasons"
    yield ""
    yield "Each action, outcome and notice carries a reason: a code with facts. `penstock explain` and the page tell"
    yield "its sentence; the journal and `--json` keep code and facts."
    for area, rows in groupby(CATALOGUE, key=lambda kind: kind.area):
        yield ""
        yield f"## {area}"
        yield ""
        yield from table(
            ("code", "meaning", "sentence"), ((f"`{k.code}`", k.meaning, k.sentence) for k in rows)
        )


def metrics() -> Iterator[str]:
    """Everything that is exported to Prometheus."""
    yield "# Metrics"
    yield ""
    yield "What `/metrics` of the page exports, in Prometheus' text format."
    yield ""
    rows = ((f"`{f.name}`", f.kind, ", ".join(f.labels), f.help) for f in FIGURES)
    yield from table(("metric", "kind", "labels", "meaning"), rows)


def dataflow_file() -> Iterator[str]:
    """The keys of a dataflow file, from the types of what they declare."""
    yield "# The dataflow file"
    yield ""
    yield "What each key means and may hold. [Declare a dataflow](../guide/dataflows.md) has a complete example."
    yield ""
    yield "## Operators"
    yield ""
    texts = field_texts(graph.Alternate) | field_texts(graph.Operator)
    rows = []
    for owner, but in ((graph.Operator, {"id"}), (graph.Alternate, {"name", "value"})):
        for name, hint in hints_of(owner).items():
            if name not in but:
                rows.append(
                    (f"`{name}`", _kinds(name), _form(hint), _default_of(owner, name), texts.get(name, ""))
                )
    rows.insert(
        1, ("`inputs`", "all but source", "list of ids, or of `{from: id, wiring: …}`", "", _wirings())
    )
    yield from table(("key", "of", "holds", "default", "meaning"), rows)
    for title, owner in (
        ("Alternates", graph.Alternate),
        ("Parallelism", graph.Parallelism),
        ("State", graph.State),
        ("Goals", graph.Goals),
    ):
        yield ""
        yield f"## {title}"
        yield ""
        own = field_texts(owner)
        yield from table(
            ("key", "holds", "default", "meaning"),
            (
                (f"`{name}`", _form(hint), _default_of(owner, name), own.get(name, ""))
                for name, hint in hints_of(owner).items()
            ),
        )
    yield ""
    yield "## Constraints"
    yield ""
    bounds = ", ".join(f"`{statistic}_ms`" for statistic in graph.STATISTICS)
    yield "`sequence` (operators that follow one another, `a -> b`; an arrow at an end includes the stream there),"
    yield f"exactly one of {bounds}, and, if need be, `window_s` and `name`."
    for role in ("source", "sink"):
        yield ""
        yield f"## Connectors of a {role}"
        yield ""
        yield from table(("kind", "option", "holds", "default", "meaning"), _connector_rows(role))
    yield ""
    yield "## Loads"
    yield ""
    yield f"A number, `{{{', '.join(f'{key}: …' for key in POINTS)}}}`, or a `kind` with its arguments:"
    yield ""
    yield from table(
        ("kind", "arguments", "meaning"),
        ((f"`{kind}`", _arguments(maker), _first_line(maker)) for kind, maker in LOADS.items()),
    )


def _kinds(name: str) -> str:
    return ", ".join(ONLY_FOR[name]) if name in ONLY_FOR else "all"


def _wirings() -> str:
    return (
        f"wiring: {', '.join(get_args(graph.Wiring))}; the default is forward, and key for a keyed operator"
    )


def _form(hint: Any) -> str:
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        check = arguments[1]
        limits = {k: v for k, v in getattr(check, "keywords", {}).items() if k != "whole"}
        words = {"at_least": "at least", "above": "above", "at_most": "at most"}
        name = getattr(check, "__name__", _form(arguments[0]))
        said = "number" if limits else {"names": "a name or a list of them"}.get(name, name)
        return ", ".join([said, *(f"{words[k]} {v:,}" for k, v in limits.items())])
    if origin is Literal:
        return " / ".join(f"`{each}`" for each in arguments)
    if type(None) in arguments:
        return _form(arguments[0])
    if origin is tuple:
        return f"list of {_form(arguments[0])}"
    return {"int": "whole number", "float": "number", "str": "text", "Function": "`module:name`"}.get(
        getattr(hint, "__name__", ""), getattr(hint, "__name__", "").lower()
    )


def _default_of(owner: type[Any], name: str) -> str:
    for field in dataclasses.fields(owner):
        if field.name == name:
            return "required" if field.default is dataclasses.MISSING else f"`{_shown(field.default)}`"
    return ""


def _connector_rows(role: str) -> Iterator[tuple[str, ...]]:
    for (mine, kind), rules in connectors.KINDS.items():
        if mine != role:
            continue
        for part in ("function", "schema", "load"):
            if (need := getattr(rules, part)) != "refused":
                yield f"`{kind}`", f"`{part}`", "", need, ""
        for name, option in rules.options.items():
            holds = " / ".join(f"`{c}`" for c in option.choices) or option.type.__name__
            default = (
                "required" if option.required else "" if option.default is None else f"`{option.default}`"
            )
            yield f"`{kind}`", f"`{name}`", holds, default, option.meaning
        if not rules.options and rules.function == "refused":
            yield f"`{kind}`", "", "", "", ""


def _arguments(maker: Callable[..., Any]) -> str:
    parameters = inspect.signature(maker).parameters.values()
    return ", ".join(
        f"`{p.name}`" + ("" if p.default is inspect.Parameter.empty else f" ({_shown(p.default)})")
        for p in parameters
    )


def _first_line(thing: Any) -> str:
    return (inspect.getdoc(thing) or "").partition("\n")[0]


def _first_paragraph(thing: Any) -> str:
    return " ".join((inspect.getdoc(thing) or "").partition("\n\n")[0].split())


def _shown(value: Any) -> str:
    if isinstance(value, tuple) and value and dataclasses.is_dataclass(value[0]):
        return "one, unnamed"
    if isinstance(value, tuple):
        return ", ".join(str(v) for v in value) or "none"
    if dataclasses.is_dataclass(value):
        return "1"  # `Parallelism()`
    return "none" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def table(columns: Iterable[str], rows: Iterable[Iterable[Any]]) -> Iterator[str]:
    """A Markdown table."""
    columns = list(columns)
    yield f"| {' | '.join(columns)} |"
    yield "|" + "---|" * len(columns)
    for row in rows:
        cells = (str(cell or "").replace("|", "\\|") for cell in row)
        yield f"| {' | '.join(cells)} |"


def drift() -> Mapping[str, str]:
    """Pages that differ from what the code says, with the text they should have."""
    made = pages()
    stale = {p.name for p in FOLDER.glob("*.md")} - set(made)
    wrong = {
        n: t for n, t in made.items() if not (FOLDER / n).exists() or (FOLDER / n).read_text("utf-8") != t
    }
    return wrong | dict.fromkeys(stale, "")


def main() -> None:
    """Write the pages, or compare them."""
    if "--check" in sys.argv:
        if wrong := drift():
            sys.exit(f"docs/reference differs from the code, run make docs: {', '.join(sorted(wrong))}")
        return
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, text in drift().items():
        if text:
            (FOLDER / name).write_text(text, encoding="utf-8")
        else:
            (FOLDER / name).unlink()


if __name__ == "__main__":
    main()
