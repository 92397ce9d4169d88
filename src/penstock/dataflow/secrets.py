"""Passwords, tokens and keys never reach a journal, a report, a log or a page: here they are recognised and masked."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TypeVar

MASK = "***"
_NAMES = r"password|passwd|secret|token|jaas|credential|private.?key|access.?key|api.?key"
_NAME = re.compile(_NAMES, re.IGNORECASE)
_TEXT = re.compile(
    rf"""([\w.-]*(?:{_NAMES})[\w.-]*["']?\s*[=:]\s*)("[^"]*"|'[^']*'|[^\s,;]+)""", re.IGNORECASE
)
V = TypeVar("V")


def is_secret(name: str) -> bool:
    """Whether the value of an option of this name must not be shown.

    >>> is_secret("kafka.sasl.jaas.config"), is_secret("subscribe")
    (True, False)
    """
    return _NAME.search(name) is not None


def masked(options: Mapping[str, V]) -> dict[str, V | str]:
    """The options with the secret ones masked."""
    return {name: MASK if is_secret(name) else value for name, value in options.items()}


def masked_text(text: str) -> str:
    """A message without the secrets that it quotes.

    >>> masked_text('login failed: username="ann" password="x y", retry')
    'login failed: username="ann" password=***, retry'
    """
    return _TEXT.sub(rf"\1{MASK}", text)
