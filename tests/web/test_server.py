"""Who may read the page, who may change something, and who is sent away."""

from __future__ import annotations

import gzip
import http.client
import json
from collections.abc import Iterator

import psutil
import pytest

from penstock.control import Loop
from penstock.errors import InputError
from penstock.web.live_page import LivePage
from penstock.web.server import Address, PageServer
from tests.web.runs import a_loop

TOKEN = "the-right-token"


@pytest.fixture
def loop() -> Loop:
    return a_loop()


@pytest.fixture
def server(loop: Loop) -> Iterator[PageServer]:
    page = LivePage(loop, title="shop")
    loop.step()
    with PageServer(page, Address(), token=TOKEN) as served:
        yield served


@pytest.fixture
def open_server(loop: Loop) -> Iterator[PageServer]:
    """One that listens for everybody."""
    page = LivePage(loop, title="shop")
    with PageServer(page, Address(host="0.0.0.0"), token=TOKEN) as served:
        yield served


def ask(
    server: PageServer, path: str, *, method: str = "GET", body: str | None = None, **headers: str
) -> tuple[int, str, http.client.HTTPMessage]:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    connection.request(method, path, body=body, headers=named)
    answer = connection.getresponse()
    raw = answer.read()
    connection.close()
    text = gzip.decompress(raw) if answer.getheader("Content-Encoding") == "gzip" else raw
    return answer.status, text.decode(), answer.headers


def change(server: PageServer, document: object, **headers: str) -> tuple[int, str]:
    sent = {"Content_Type": "application/json", "Authorization": f"Bearer {TOKEN}", **headers}
    status, text, _ = ask(server, "/api/change", method="POST", body=json.dumps(document), **sent)
    return status, text


def test_on_loopback_everybody_may_read(server: PageServer) -> None:
    for path in ("/", "/api/state", "/metrics"):
        assert ask(server, path)[0] == 200
    state = json.loads(ask(server, "/api/state")[1])
    assert [q["name"] for q in state["queries"]] == ["orders", "clicks"]


def test_state_that_has_not_changed_is_not_sent_again(server: PageServer, loop: Loop) -> None:
    tag = ask(server, "/api/state")[2]["ETag"]
    assert ask(server, "/api/state", If_None_Match=tag)[0] == 304
    loop.step()
    assert ask(server, "/api/state", If_None_Match=tag)[0] == 200


def test_the_page_may_load_nothing_from_elsewhere_and_be_framed_by_nobody(server: PageServer) -> None:
    policy = ask(server, "/")[2]["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy
    assert "http" not in policy


def test_a_change_with_the_token_is_done_in_the_next_cycle(server: PageServer, loop: Loop) -> None:
    assert change(server, {"goal": "orders.on-time", "latency_ms": 900})[0] == 202
    assert change(server, {"mode": "observe"})[0] == 202
    cycle = loop.step()
    assert [(c.what, c.after, c.by) for c in cycle.changes] == [
        ("mode", "observe", "page"),
        ("latency_ms", "900", "page"),
    ]


@pytest.mark.parametrize(
    "headers",
    [
        {"Authorization": ""},
        {"Authorization": "Bearer wrong"},
        {"Authorization": f"Basic {TOKEN}"},
        {"Origin": "http://evil.example"},
        {"Sec_Fetch_Site": "cross-site"},
        {"Host": "evil.example"},
        {"Content_Type": "text/plain"},
    ],
)
def test_a_change_from_elsewhere_or_without_the_token_is_refused(
    server: PageServer, loop: Loop, headers: dict[str, str]
) -> None:
    assert change(server, {"mode": "observe"}, **headers)[0] in (400, 401, 403)
    assert loop.step().changes == ()


def test_a_token_in_an_address_changes_nothing(server: PageServer, loop: Loop) -> None:
    path = f"/api/change?token={TOKEN}"
    status, _, _ = ask(
        server, path, method="POST", body='{"mode": "observe"}', Content_Type="application/json"
    )
    assert status == 401
    assert loop.step().changes == ()


@pytest.mark.parametrize(
    "wanted",
    [
        {},
        [],
        {"mode": "sleep"},
        {"mode": "act", "x": 1},
        {"goal": "orders.on-time"},
        {"goal": "nobody", "latency_ms": 5},
        {"goal": "orders.on-time", "latency_ms": -1},
    ],
)
def test_a_change_that_makes_no_sense_is_refused_with_a_word(server: PageServer, wanted: object) -> None:
    status, text = change(server, wanted)
    assert status == 400
    assert json.loads(text)["error"]


def test_a_page_of_another_name_that_points_here_reads_nothing(server: PageServer) -> None:
    assert ask(server, "/api/state", Host="evil.example")[0] == 403
    assert ask(server, "/api/state", Origin="http://evil.example")[0] == 403
    assert ask(server, "/metrics", Sec_Fetch_Site="cross-site")[0] == 403


def test_elsewhere_nothing_is_told_without_the_token(open_server: PageServer) -> None:
    for path in ("/", "/api/state", "/metrics"):
        status, text, _ = ask(open_server, path)
        assert status == 401
        assert "orders" not in text
        assert ask(open_server, path, Authorization="Bearer wrong")[0] == 401
        assert ask(open_server, path, Authorization=f"Bearer {TOKEN}")[0] == 200
        assert ask(open_server, f"{path}?token={TOKEN}")[0] == 200


def test_unless_told_otherwise_it_listens_on_loopback_only(
    server: PageServer, open_server: PageServer
) -> None:
    listening = [c for c in psutil.Process().net_connections("inet") if c.status == psutil.CONN_LISTEN]
    hosts = {c.laddr.port: c.laddr.ip for c in listening}
    assert (hosts[server.port], server.is_loopback) == ("127.0.0.1", True)
    assert (hosts[open_server.port], open_server.is_loopback) == ("0.0.0.0", False)


def test_what_is_not_there_is_not_found(server: PageServer) -> None:
    assert ask(server, "/../../etc/passwd")[0] == 404
    assert ask(server, "/api/state?points=many")[0] == 400


@pytest.mark.parametrize("text", ["", "port", "1.2.3.4:", "70000", "-1"])
def test_an_address_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(InputError):
        Address.parse(text)
