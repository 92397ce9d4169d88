"""The page of a running loop: shows every cycle, and passes changes on to the loop."""

from __future__ import annotations

import logging
from importlib.metadata import version
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from penstock.control import Loop
from penstock.control.changes import MODES
from penstock.errors import InputError
from penstock.web.history import History
from penstock.web.metrics import Metrics
from penstock.web.server import Address, PageServer

log = logging.getLogger(__name__)


class ChangeRequest(BaseModel):
    """A change as the page sends it: a goal's bound, or the mode."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    goal: str | None = None
    latency_ms: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    mode: str | None = None

    @model_validator(mode="after")
    def _complete(self) -> ChangeRequest:
        if (self.goal is None) != (self.latency_ms is None) or (self.goal is None) == (self.mode is None):
            raise ValueError("a change has a goal with its latency_ms, or a mode")
        return self


class LivePage:
    """What a loop has shown so far; subscribes itself to the loop."""

    def __init__(self, loop: Loop, *, title: str) -> None:
        self._loop = loop
        self.history = History(title=title, version=version("penstock"))
        self._metrics = Metrics()
        loop.subscribers += [self.history, self._metrics]

    def state(self, *, last_s: float | None, points: int) -> dict[str, Any]:
        """The document of the page."""
        document = self.history.document(last_s=last_s, points=points)
        mode = self._loop.modes.now
        return {**document, "live": True, "may_change": True, "mode": mode, "modes": MODES}

    def metrics(self) -> bytes:
        """Figures for Prometheus."""
        return self._metrics.text()

    def change(self, wanted: bytes) -> None:
        """Let the loop do it from its next cycle on."""
        try:
            asked = ChangeRequest.model_validate_json(wanted)
        except ValidationError as problem:
            raise InputError(problem.errors()[0]["msg"]) from None
        if asked.mode is not None:
            self._loop.modes.ask(asked.mode, by="page")
        elif asked.goal is not None and asked.latency_ms is not None:
            self._loop.bounds.ask(asked.goal, asked.latency_ms, by="page")


def serve(loop: Loop, address: str | int, *, title: str, token: str | None = None) -> PageServer | None:
    """The page of a loop, being served; None, with a warning, where that cannot be."""
    page = LivePage(loop, title=title)
    try:
        return PageServer(page, Address.parse(address), token=token)
    except OSError as problem:
        log.warning(
            "the page cannot be served on %s: %s; going on without it", address, problem.strerror or problem
        )
        return None
