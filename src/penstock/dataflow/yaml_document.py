"""YAML text as plain data, with the line of every value; hostile text is refused, never followed.

Stricter than YAML on purpose. Only `true`, `false`, `null` and numbers are anything but text (so `no`, `1:30` and
`2026-01-01` stay what was written, and `2e-4` is a number); keys are texts and stand once; tags are refused; size,
depth and what aliases expand to are bounded.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import yaml

from penstock.dataflow.errors import DataflowError, Problem

MAX_BYTES = 4_000_000
MAX_VALUES = 200_000
MAX_DEPTH = 20
MAX_PROBLEMS = 50

Keys = tuple[str | int, ...]
"""The way to a value: keys of mappings and positions in lists."""

# libyaml where PyYAML was built with it: ten times as fast.
_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_INTEGER = re.compile(r"[-+]?[0-9]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_WORDS: dict[str, Any] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
    **dict.fromkeys((".inf", ".Inf", ".INF", "+.inf", "+.Inf", "+.INF"), float("inf")),
    **dict.fromkeys(("-.inf", "-.Inf", "-.INF"), float("-inf")),
    **dict.fromkeys((".nan", ".NaN", ".NAN"), float("nan")),
}


@dataclass(slots=True)
class _Node:
    """A value of the text: a scalar, a list of nodes, or nodes by key, each with the mark of its key."""

    mark: Any
    content: Any
    anchor: str | None = None
    size: int = 1
    depth: int = 0

    def plain(self) -> Any:
        if isinstance(self.content, list):
            return [node.plain() for node in self.content]
        if isinstance(self.content, dict):
            return {key: node.plain() for key, (_, node) in self.content.items()}
        return self.content


class Document:
    """What a text says, and where it says it."""

    def __init__(self, root: _Node) -> None:
        self._root = root
        self.data: Any = root.plain()

    def position(self, keys: Keys) -> tuple[int, int]:
        """Line and column, counted from 1, of the value at `keys` or of the nearest one around it."""
        node, mark = self._root, self._root.mark
        for part in keys:
            if isinstance(node.content, dict) and part in node.content:
                mark, node = node.content[part]
            elif isinstance(node.content, list) and isinstance(part, int) and part < len(node.content):
                node = node.content[part]
                mark = node.mark
            else:
                break
        return mark.line + 1, mark.column + 1


def read_document(text: str | bytes) -> Document:
    """The one YAML document in `text`; a DataflowError says why it is none."""
    if len(text) > MAX_BYTES:
        raise DataflowError([Problem(place="", message=f"is longer than {MAX_BYTES} bytes")])
    reader = _Reader()
    try:
        for event in yaml.parse(
            text.decode("utf-8-sig") if isinstance(text, bytes) else text, Loader=_Loader
        ):
            reader.take(event)
    except (UnicodeDecodeError, UnicodeEncodeError) as problem:
        reader.refuse(f"is not UTF-8 ({problem.reason} at byte {problem.start})")
    except yaml.MarkedYAMLError as problem:
        what = " ".join(part for part in (problem.context, problem.problem) if part)
        reader.refuse(f"is not YAML: {what}", problem.problem_mark or problem.context_mark)
    except yaml.YAMLError as problem:
        reader.refuse(f"is not YAML: {' '.join(str(problem).split())}")
    except _EnoughError:
        pass
    if reader.root is None and not reader.problems:
        reader.refuse("is empty")
    if reader.root is None or reader.problems:
        raise DataflowError(reader.problems)
    return Document(reader.root)


class _EnoughError(Exception):
    """The reader has seen enough."""


class _Reader:
    """Builds the tree from the parser's events, without recursion."""

    def __init__(self) -> None:
        self.root: _Node | None = None
        self.problems: list[Problem] = []
        self._open: list[_Node] = []
        self._keys: list[tuple[str, Any] | None] = []
        self._anchors: dict[str, _Node] = {}
        self._size = 0

    def refuse(self, message: str, mark: Any = None) -> None:
        line, column = (None, None) if mark is None else (mark.line + 1, mark.column + 1)
        self.problems.append(Problem(place="", message=message, line=line, column=column))
        if len(self.problems) == MAX_PROBLEMS:
            raise _EnoughError

    def take(self, event: Any) -> None:
        if isinstance(event, yaml.DocumentStartEvent) and self.root is not None:
            self.refuse("has more than one document", event.start_mark)
            raise _EnoughError
        if isinstance(event, yaml.CollectionStartEvent):
            self._refuse_tag(event)
            content: Any = {} if isinstance(event, yaml.MappingStartEvent) else []
            self._open.append(_Node(event.start_mark, content, event.anchor))
            self._keys.append(None)
            self._refuse_size(event, depth=0)
        elif isinstance(event, yaml.CollectionEndEvent):
            self._keys.pop()
            self._add(self._open.pop(), event)
        elif isinstance(event, yaml.ScalarEvent):
            self._refuse_tag(event)
            self._scalar(event)
        elif isinstance(event, yaml.AliasEvent):
            node = self._anchors.get(str(event.anchor))
            if node is None:
                self.refuse(f"alias '*{event.anchor}' stands for nothing before it", event.start_mark)
                node = _Node(event.start_mark, None)
            self._refuse_size(event, depth=node.depth, size=node.size)
            self._add(_Node(event.start_mark, node.content, None, node.size, node.depth), event)

    def _scalar(self, event: Any) -> None:
        if self._open and isinstance(self._open[-1].content, dict) and self._keys[-1] is None:
            # A key is a text, however it looks: `no:` and `1:` are names like others.
            if event.value in self._open[-1].content:
                self.refuse(f"key '{event.value}' is there twice", event.start_mark)
            self._keys[-1] = (event.value, event.start_mark)
            return
        value: Any = event.value
        if event.implicit[0]:
            try:
                value = _plain_value(value)
            except OverflowError:
                self.refuse(f"number {value[:20]}… is too large", event.start_mark)
        self._refuse_size(event, depth=0)
        self._add(_Node(event.start_mark, value, event.anchor), event)

    def _add(self, node: _Node, event: Any) -> None:
        if node.anchor is not None:
            self._anchors[node.anchor] = node
        if not self._open:
            self.root = node
            return
        parent = self._open[-1]
        parent.size += node.size
        parent.depth = max(parent.depth, node.depth + 1)
        if isinstance(parent.content, list):
            parent.content.append(node)
        elif (key := self._keys[-1]) is None:
            self.refuse("a key must be a text", event.start_mark)
            self._keys[-1] = ("", event.start_mark)
        else:
            parent.content[key[0]] = (key[1], node)
            self._keys[-1] = None

    def _refuse_tag(self, event: Any) -> None:
        if event.tag is not None:
            self.refuse(f"tag '{event.tag}' is not supported", event.start_mark)

    def _refuse_size(self, event: Any, *, depth: int, size: int = 1) -> None:
        self._size += size
        if self._size > MAX_VALUES:
            self.refuse(f"has more than {MAX_VALUES} values", event.start_mark)
            raise _EnoughError
        if len(self._open) + depth > MAX_DEPTH:
            self.refuse(f"is nested more than {MAX_DEPTH} deep", event.start_mark)
            raise _EnoughError


def _plain_value(text: str) -> Any:
    """What an unquoted scalar stands for; an integer beyond 64 bits is an OverflowError."""
    if text in _WORDS:
        return _WORDS[text]
    if _INTEGER.fullmatch(text):
        if len(text) > 20 or not -(2**63) <= int(text) < 2**63:
            raise OverflowError
        return int(text)
    return float(text) if _FLOAT.fullmatch(text) else text
