"""The command line inside the test process: the same entry point, with its exit code and what it printed."""

from __future__ import annotations

import contextlib
import io
import sys
from dataclasses import dataclass
from unittest.mock import patch

from penstock.cli import main


@dataclass(frozen=True, slots=True)
class Ran:
    code: int
    out: str
    err: str


def penstock(*arguments: str) -> Ran:
    """What `penstock ARGUMENTS` does."""
    out, err = io.StringIO(), io.StringIO()
    with (
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        patch.object(sys, "argv", ["penstock", *arguments]),
    ):
        try:
            main()
        except SystemExit as end:
            code = end.code
    return Ran(int(code or 0), out.getvalue(), err.getvalue())
