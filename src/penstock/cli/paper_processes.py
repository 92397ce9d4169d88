"""Several papers' trials at once, each in a process of its own: what ends one of them ends no other."""

from __future__ import annotations

import multiprocessing
import os
import platform
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from penstock import extensions
from penstock.cli.output import nothing_printed

Tell = Callable[[str], None]


def run_all(papers: Mapping[str, str], *, plot: Path | None, tell: Tell) -> dict[str, Any]:
    """One document: what each paper came to with its seconds, or why it ended without; and on which machine.

    As many run at once as there are cores; those that are listed first begin first.
    """
    began_s, began = time.monotonic(), datetime.now(UTC)
    cores = len(os.sched_getaffinity(0))

    def one(name: str) -> dict[str, Any]:
        folder = None if plot is None else plot / name
        return _run(papers[name], folder, lambda what: tell(f"{name}: {what}"))

    with ThreadPoolExecutor(max_workers=cores) as pool:
        found = dict(zip(papers, pool.map(one, papers), strict=True))
    return {
        "holds": all(document.get("holds", False) for document in found.values()),
        "papers": found,
        "began": began.isoformat(timespec="seconds"),
        "seconds": time.monotonic() - began_s,
        "machine": {"cores": cores, "processor": platform.machine(), "python": platform.python_version()},
    }


def _run(reference: str, plot: Path | None, tell: Tell) -> dict[str, Any]:
    """A paper's document, or `error` with the last line of what went wrong."""
    tell("begins")
    began_s = time.monotonic()
    # Not by fork: the threads that wait for other papers are in this process.
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_work, args=(reference, plot, sender))
    process.start()
    sender.close()
    document: dict[str, Any] | None = None
    try:
        while document is None:
            kind, what = receiver.recv()
            if kind == "told":
                tell(what)
            else:
                document = what
    except EOFError:
        process.join()
        document = {"error": f"its process ended with code {process.exitcode}"}
    process.join()
    document["seconds"] = time.monotonic() - began_s
    tell(f"failed: {document['error']}" if "error" in document else f"done in {document['seconds']:.0f} s")
    return document


def _work(reference: str, plot: Path | None, sender: Connection) -> None:
    """In the other process: run the trials and send what they tell, and in the end what they found."""
    with nothing_printed():
        try:
            found = extensions.load(reference)(plot=plot, tell=lambda what: sender.send(("told", what)))
            document = found.document()
        except Exception as problem:
            traceback.print_exc(file=sys.stderr)
            document = {"error": "".join(traceback.format_exception_only(problem)).strip()}
    sender.send(("found", document))
