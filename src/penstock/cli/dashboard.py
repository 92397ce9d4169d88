"""`penstock dashboard`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from penstock.cli import options
from penstock.cli.output import complaints, print_json, results
from penstock.errors import InputError


def dashboard(
    run: Annotated[str, typer.Argument(metavar="[RUN]", help="A run's id, or 'last'.")] = "last",
    journal: options.Journal = None,
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write the page into this HTML file instead of serving it."),
    ] = None,
    ui: Annotated[str, typer.Option(metavar="PORT", help="Port, or HOST:PORT; default: any free one.")] = "0",
    json: options.Json = False,
) -> None:
    """The page of a run from its journal, also while another process writes it."""
    from penstock.api.journals import recorded_run
    from penstock.web.recorded import RecordedPage, write_page
    from penstock.web.server import Address, PageServer

    with recorded_run(journal, run) as (opened, chosen):
        if out is not None:
            write_page(opened, chosen, out)
            if json:
                print_json({"run": chosen.id, "page": str(out)})
            else:
                results.print(f"{out}", markup=False, soft_wrap=True)
            return
        try:
            server = PageServer(RecordedPage(opened, chosen), Address.parse(ui))
        except OSError as problem:
            raise InputError(f"cannot listen on {ui}: {problem.strerror}") from problem
        with server:
            url = (
                server.url if server.is_loopback else server.url_with_token
            )  # elsewhere even reading needs it
            if json:
                print_json({"run": chosen.id, "url": url})
            else:
                results.print(url, markup=False, soft_wrap=True)
            complaints.print("[dim]Ctrl-C ends it[/]")
            _until_interrupted()


def _until_interrupted() -> None:
    import signal
    import threading

    done = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: done.set())
    while not done.wait(1.0):
        pass
