"""The page over HTTP: the page itself, its state as JSON, `/metrics`, and changes by whoever has the token.

Reading needs no token on loopback; elsewhere everything needs it. A change needs it everywhere. Requests under another
name than this machine's (a web page whose name was made to point here) or from another origin are refused.
"""

from __future__ import annotations

import gzip
import hmac
import ipaddress
import logging
import math
import secrets
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, ClassVar, Protocol, Self
from urllib.parse import parse_qs, urlsplit

from penstock.errors import InputError
from penstock.web.page import content_policy, encoded, page_html

log = logging.getLogger(__name__)

LONGEST_BODY = 4096
MOST_POINTS = 4000
TIMEOUT_S = 30.0
_LOGIN = """<!doctype html><html lang="en"><meta charset="utf-8"><title>Penstock</title>
<form><label>Token <input name="token" type="password" autofocus></label> <button>Open</button></form>"""
"""A browser that comes without a token is asked for one; the form asks for `/?token=…` then."""


class Shown(Protocol):
    """What the page shows, and how it is changed."""

    def state(self, *, last_s: float | None, points: int) -> dict[str, Any]:
        """The document of the page; its `serial` changes when it has something new to tell."""
        ...

    def metrics(self) -> bytes:
        """Figures for Prometheus."""
        ...

    def change(self, wanted: bytes) -> None:
        """Do what a change (JSON) asks for; `InputError` if that cannot be."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """Where to listen."""

    host: str = "127.0.0.1"
    port: int = 0

    @classmethod
    def parse(cls, text: str | int) -> Address:
        """`4041`, or `0.0.0.0:4041` to be reached from elsewhere.

        >>> Address.parse("4041").is_loopback, Address.parse("0.0.0.0:4041").is_loopback
        (True, False)
        """
        host, _, port = str(text).rpartition(":")
        host = host.strip("[]")
        if not port.isdigit() or not 0 <= int(port) <= 65535:
            raise InputError(f"the page listens on PORT or HOST:PORT, not '{text}'")
        return cls(host=host or "127.0.0.1", port=int(port))

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach it."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False


class PageServer:
    """Serves until it is closed. A port that is taken is an `OSError` at once."""

    def __init__(self, shown: Shown, address: Address, *, token: str | None = None) -> None:
        self.token = token or secrets.token_urlsafe(24)
        self.is_loopback = address.is_loopback
        """Whether only this machine can reach it: then reading needs no token."""
        kind = _V6Server if ":" in address.host else _Server
        self._server = kind((address.host, address.port), _handler(shown, self.token, address.is_loopback))
        self.port: int = self._server.server_address[1]
        named = socket.gethostname() if address.host in ("0.0.0.0", "::") else address.host
        host = f"[{named}]" if ":" in named else named
        self.url = f"http://{host}:{self.port}/"
        """Where the page can be read; with `?token=…`, also changed."""
        self._thread = threading.Thread(target=self._server.serve_forever, name="penstock-page", daemon=True)
        self._thread.start()

    @property
    def url_with_token(self) -> str:
        """The address that a person opens to change things."""
        return f"{self.url}?token={self.token}"

    def close(self) -> None:
        """Stop listening."""
        self._server.shutdown()
        self._server.server_close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    allow_reuse_address = True
    request_queue_size = 32

    def handle_error(self, request: Any, client_address: Any) -> None:
        log.debug("a request of %s broke off", client_address, exc_info=True)


class _V6Server(_Server):
    address_family = socket.AF_INET6


def _handler(shown: Shown, token: str, loopback: bool) -> type[BaseHTTPRequestHandler]:
    """The class of handlers that http.server makes one of for each connection."""
    return type("Handler", (_Handler,), {"shown": shown, "secret": token, "loopback": loopback})


class _Handler(BaseHTTPRequestHandler):
    server_version, sys_version = "penstock", ""
    protocol_version = "HTTP/1.1"
    timeout = TIMEOUT_S
    shown: ClassVar[Shown]
    secret: ClassVar[str]
    loopback: ClassVar[bool]

    def do_GET(self) -> None:  # the name that http.server calls
        """The page, its state, its metrics."""
        routes: dict[str, Callable[[dict[str, list[str]]], None]] = {
            "/": self._page,
            "/api/state": self._state,
            "/metrics": self._metrics,
        }
        self._answer(routes, change=False)

    def do_POST(self) -> None:
        """A change."""
        self._answer({"/api/change": self._change}, change=True)

    def _answer(self, routes: dict[str, Callable[[dict[str, list[str]]], None]], *, change: bool) -> None:
        split = urlsplit(self.path)
        query = parse_qs(split.query)
        try:
            if not self._is_for_us():
                self._send_error(
                    HTTPStatus.FORBIDDEN, "the request is not for this machine, or from another page"
                )
            elif split.path not in routes:
                self._send_error(HTTPStatus.NOT_FOUND, "there is nothing here")
            elif (change or not self.loopback) and not self._has_token(query, change=change):
                self._refuse(split.path)
            else:
                routes[split.path](query)
        except InputError as problem:
            self._send_error(HTTPStatus.BAD_REQUEST, str(problem))
        except OSError:
            raise  # the other side has gone
        except Exception as problem:
            log.warning("the page could not answer %s: %s", split.path, problem, exc_info=True)
            self._send_error(HTTPStatus.INTERNAL_SERVER_ERROR, f"{type(problem).__name__} in Penstock")

    def _is_for_us(self) -> bool:
        """Whether the request names this machine and, where a browser says so, comes from this page."""
        host = self.headers.get("Host", "")
        if self.loopback and not Address(host=_without_port(host)).is_loopback:
            return False
        # A link to the page may stand anywhere: the page itself tells nothing.
        site = self.headers.get("Sec-Fetch-Site", "none")
        if site not in ("same-origin", "none") and urlsplit(self.path).path != "/":
            return False
        origin = self.headers.get("Origin")
        return origin is None or urlsplit(origin).netloc == host

    def _has_token(self, query: dict[str, list[str]], *, change: bool) -> bool:
        kind, _, given = self.headers.get("Authorization", "").partition(" ")
        if kind.lower() != "bearer":
            # A link may carry it to look, never to change.
            given = "" if change else query.get("token", [""])[0]
        return hmac.compare_digest(given.encode(), self.secret.encode())

    def _refuse(self, path: str) -> None:
        if path == "/":
            self._send(HTTPStatus.UNAUTHORIZED, _LOGIN.encode(), "text/html; charset=utf-8")
        else:
            self._send_error(HTTPStatus.UNAUTHORIZED, "the token is missing or wrong")

    def _page(self, _: dict[str, list[str]]) -> None:
        self._send(HTTPStatus.OK, page_html(None).encode(), "text/html; charset=utf-8", page=True)

    def _state(self, query: dict[str, list[str]]) -> None:
        last_s = _number(query, "last_s", None)
        points = _number(query, "points", 600.0)
        state = self.shown.state(last_s=last_s, points=int(min(max(points or 2, 2), MOST_POINTS)))
        tag = f'"{state["serial"]}"'
        if self.headers.get("If-None-Match") == tag:
            self._send(HTTPStatus.NOT_MODIFIED, b"", "application/json", tag=tag)
        else:
            self._send(HTTPStatus.OK, encoded(state), "application/json", tag=tag)

    def _metrics(self, _: dict[str, list[str]]) -> None:
        self._send(HTTPStatus.OK, self.shown.metrics(), "text/plain; version=0.0.4; charset=utf-8")

    def _change(self, _: dict[str, list[str]]) -> None:
        length = self.headers.get("Content-Length", "")
        if not length.isdigit() or int(length) > LONGEST_BODY:
            raise InputError("a change is a short JSON document")
        body = self.rfile.read(int(length))
        if self.headers.get_content_type() != "application/json":
            raise InputError("a change is sent as application/json")
        self.shown.change(body)
        self._send(HTTPStatus.ACCEPTED, encoded({"accepted": True}), "application/json")

    def _send_error(self, status: HTTPStatus, text: str) -> None:
        # What was not read of the request would be taken for the next one.
        self.close_connection = True
        self._send(status, encoded({"error": text}), "application/json")

    def _send(
        self, status: HTTPStatus, body: bytes, kind: str, *, tag: str | None = None, page: bool = False
    ) -> None:
        self.send_response(status)
        if len(body) > 1000 and "gzip" in self.headers.get("Accept-Encoding", ""):
            body = gzip.compress(body, 1)
            self.send_header("Content-Encoding", "gzip")
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        policy = content_policy() if page else "default-src 'none'; form-action 'self'"
        self.send_header("Content-Security-Policy", f"{policy}; frame-ancestors 'none'")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Referrer-Policy", "no-referrer")
        self.send_header("Cross-Origin-Resource-Policy", "same-origin")
        self.send_header("Cache-Control", "no-store")
        if tag is not None:
            self.send_header("ETag", tag)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Nothing: a request may carry the token."""


def _without_port(host: str) -> str:
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""


def _number(query: dict[str, list[str]], name: str, otherwise: float | None) -> float | None:
    if name not in query:
        return otherwise
    try:
        value = float(query[name][0])
    except ValueError:
        value = math.nan
    if not math.isfinite(value) or value < 0:
        raise InputError(f"{name} is a number, not '{query[name][0]}'")
    return value
