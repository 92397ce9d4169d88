"""Columns as users write them, `id long, text string`: checked before Spark is there to check them."""

from __future__ import annotations

import re
from collections.abc import Iterator

from penstock.errors import did_you_mean

TYPES = (
    "array", "bigint", "binary", "boolean", "byte", "char", "date", "decimal", "double", "float", "int",
    "integer", "interval", "long", "map", "numeric", "real", "short", "smallint", "string", "struct", "time",
    "timestamp", "timestamp_ltz", "timestamp_ntz", "tinyint", "varchar", "variant", "void",
)  # fmt: skip

_COLUMN = re.compile(r"\s*(?:`((?:[^`]|``)+)`|(\w+))\s*(?::|\s)\s*(\w+)\s*(.*)", re.DOTALL)
_BRACKETS = {"<": ">", "(": ")"}


class ColumnsError(ValueError):
    """Columns that Spark would not understand either."""


def column_names(text: str) -> tuple[str, ...]:
    """The names of the columns in `text`, in order; a ColumnsError says what is wrong with it.

    >>> column_names("id long, tags array<string>, price decimal(10, 2) not null")
    ('id', 'tags', 'price')
    """
    names: list[str] = []
    for part in _parts(text):
        match = _COLUMN.fullmatch(part)
        if match is None:
            raise ColumnsError(f"'{part.strip()}' is not a column; write 'name type'")
        quoted, plain, type_, _ = match.groups()
        if type_.lower() not in TYPES:
            raise ColumnsError(
                f"column '{part.strip()}' has an unknown type{did_you_mean(type_.lower(), TYPES)}"
            )
        name = plain or quoted.replace("``", "`")
        if name.lower() in (known.lower() for known in names):
            raise ColumnsError(f"column '{name}' is there twice")
        names.append(name)
    return tuple(names)


def _parts(text: str) -> Iterator[str]:
    """`text` cut at the commas that stand outside brackets and quotes."""
    open_, start, quote = [], 0, ""
    for i, character in enumerate(text):
        if quote:
            quote = "" if character == quote else quote
        elif character in "`'\"":
            quote = character
        elif character in _BRACKETS:
            open_.append(_BRACKETS[character])
        elif open_ and character == open_[-1]:
            open_.pop()
        elif character in ">)":
            raise ColumnsError(f"'{character}' closes nothing in '{text}'")
        elif character == "," and not open_:
            yield text[start:i]
            start = i + 1
    if open_ or quote:
        raise ColumnsError(f"'{quote or open_[-1]}' is missing in '{text}'")
    yield text[start:]
