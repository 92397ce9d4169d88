"""The page as one HTML file: with a recorded run inside it, or without, to ask its server for a live one."""

from __future__ import annotations

import base64
import hashlib
import html
import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

import msgspec

_SCRIPTS = ("text", "charts", "queries", "executors", "quality", "timeline", "page")


def page_html(document: Mapping[str, Any] | None, *, title: str = "Penstock") -> str:
    """The page around a document; None: it asks `api/state` of whoever served it."""
    style, script = _style(), _script()
    parts = {
        "csp": content_policy(),
        "title": html.escape(title),
        "style": style,
        "script": script,
        # A browser looks for the end of a script element before it looks at the JSON in it.
        "data": encoded(document).decode().replace("<", "\\u003c"),
    }
    return re.sub(r"\{\{(\w+)\}\}", lambda match: parts[match[1]], _static("page.html"))


def encoded(document: Any) -> bytes:
    """JSON; numbers that are not finite become null."""
    return msgspec.json.encode(document)


@cache
def content_policy() -> str:
    """What the page may do: run its own script, ask its own server; nothing else, and nothing from elsewhere."""
    return "; ".join(
        (
            "default-src 'none'",
            f"script-src '{_hash(_script())}'",
            f"style-src '{_hash(_style())}'",
            "connect-src 'self'",
            "img-src data:",
            "base-uri 'none'",
            "form-action 'none'",
        )
    )


@cache
def _script() -> str:
    own = "\n".join(_static(f"{name}.js") for name in _SCRIPTS)
    return f'{_static("uPlot.js")}\n(function () {{\n"use strict";\n{own}\n}})();\n'


@cache
def _style() -> str:
    return _static("uPlot.css") + "\n" + _static("page.css")


@cache
def _static(name: str) -> str:
    return files("penstock.web").joinpath("static", name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
