"""The command line: `penstock COMMAND`. The only place that puts the layers together."""

from penstock.cli.app import main

__all__ = ["main"]
