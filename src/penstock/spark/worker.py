"""Calls of Spark on a thread of their own, so that nobody has to wait for them."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")


class Worker:
    """Does one call after the other on a daemon thread, which nobody joins: it never holds up the end of a program."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._calls: queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._started = self._closed = False

    def submit(self, call: Callable[[], T]) -> Future[T]:
        """Have the call done after those before it; after `close` it is cancelled at once."""
        future: Future[T] = Future()
        with self._lock:
            if self._closed:
                future.cancel()
                return future
            if not self._started:
                self._started = True
                threading.Thread(target=self._run, name=self._name, daemon=True).start()
            self._calls.put((future, call))
        return future

    def close(self) -> None:
        """Do nothing more after the call under way."""
        with self._lock:
            self._closed = True
            self._calls.put(None)

    def _run(self) -> None:
        while (item := self._calls.get()) is not None:
            future, call = item
            if self._closed:
                future.cancel()
            elif future.set_running_or_notify_cancel():
                try:
                    future.set_result(call())
                except BaseException as problem:  # whoever asked is told
                    future.set_exception(problem)
