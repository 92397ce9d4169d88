"""`penstock.serve`: the live page of a pilot."""

from __future__ import annotations

from typing import Protocol

from penstock.control import Loop
from penstock.web.live_page import serve as serve_loop
from penstock.web.server import PageServer


class Piloted(Protocol):
    """What `penstock.attach` returns."""

    @property
    def loop(self) -> Loop:
        """Its control loop."""
        ...


def serve(pilot: Piloted, address: str | int = 0, *, token: str | None = None) -> PageServer | None:
    """Serve the page of a pilot on a port of this machine, or on HOST:PORT; None, with a warning, if that cannot be.

    Whoever has the token (`url_with_token`) can change goals and mode; on another address than loopback it is needed
    to read as well. `close()` ends it.
    """
    return serve_loop(pilot.loop, address, title=pilot.loop.name, token=token)
