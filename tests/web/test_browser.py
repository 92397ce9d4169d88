"""The page in a real browser: decisions, executors, a changed goal, markup in names, a day of a thousand partitions."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect

from penstock.control import Loop, NotReadyError, SqliteJournal
from penstock.telemetry import Snapshot
from penstock.testing import FakeClock, RecordingRuntime
from penstock.web.history import History
from penstock.web.live_page import LivePage
from penstock.web.page import page_html
from penstock.web.recorded import run_called, write_page
from penstock.web.server import Address, PageServer
from tests.web.browser import chromium, launched
from tests.web.runs import MARKUP, START_S, a_journal, a_loop

pytestmark = [pytest.mark.browser, pytest.mark.skipif(chromium() is None, reason="no Chromium here")]

DAY_S = 86_400.0


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with launched() as running:
        yield running


@pytest.fixture
def context(browser: Browser) -> Iterator[BrowserContext]:
    made = browser.new_context(viewport={"width": 1400, "height": 900})
    yield made
    made.close()


@pytest.fixture
def page(context: BrowserContext) -> Iterator[Page]:
    """A tab in which no script fails and nothing is refused by the page's own policy."""
    opened = context.new_page()
    trouble: list[str] = []
    opened.on("pageerror", lambda error: trouble.append(str(error)))
    opened.on("console", lambda message: trouble.append(message.text) if message.type == "error" else None)
    yield opened
    assert trouble == []


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("page")
    with a_journal(folder / "runs.sqlite") as journal:
        write_page(journal, run_called(journal, "last"), folder / "page.html")
    return folder / "page.html"


def test_a_recorded_page_opens_to_decisions_with_what_came_of_them(page: Page, recorded: Path) -> None:
    page.goto(recorded.as_uri())
    expect(page.locator("#status")).to_have_text("recorded")
    page.get_by_role("button", name="actions").click()
    first = page.locator("#episodes details").last
    first.locator("summary").click()
    topics = first.locator("dt").all_inner_texts()
    assert {"seen", "decided", "expected", "outcome"} <= {topic.lower() for topic in topics}
    page.get_by_role("button", name="all", exact=True).last.click()
    page.locator("#episodes details.quiet summary").first.click()
    expect(page.locator("#episodes details.quiet dl").first).to_contain_text("nothing was done because")


def test_executors_open_to_their_partitions_and_moves_are_marked(page: Page, recorded: Path) -> None:
    page.goto(recorded.as_uri())
    expect(page.locator("#executor-table tr[data-executor]")).to_have_count(3)
    page.locator("tr[data-executor=n1] button").click()
    expect(page.locator("#executor-table .opened")).to_contain_text("orders.totals")
    assert page.locator("#placement .strip .cell").count() == 12
    assert page.locator("#placement .strip .cell.moved").count() == 1
    expect(page.locator("#moves")).to_contain_text("orders.totals moved from n")


def test_each_query_has_its_charts(page: Page, recorded: Path) -> None:
    page.goto(recorded.as_uri())
    expect(page.locator("#query-charts canvas")).to_have_count(4)
    page.get_by_role("tab", name="clicks").click()
    expect(page.locator("[data-chart='latency clicks'] .u-legend")).to_contain_text("clicks.on-time")


def test_a_goal_changed_on_the_page_is_the_goal_of_the_next_cycle(page: Page) -> None:
    loop = a_loop()
    shown = LivePage(loop, title="shop")
    loop.step()
    with PageServer(shown, Address()) as server:
        page.goto(server.url_with_token)
        expect(page).to_have_url(server.url)  # the token does not stay in the address
        page.get_by_role("button", name="change goal orders.on-time").click()
        page.locator("#goal-value").fill("750")
        page.locator("#goal-save").click()
        page.wait_for_function("document.getElementById('goal-dialog').open === false")
        wait_for_change(loop)
        expect(page.locator("#goals")).to_contain_text("goal 750 ms")
        page.locator("#mode").select_option("observe")
        wait_for_change(loop)
        expect(page.locator("#episodes")).to_contain_text("mode changed from act to observe")


def wait_for_change(loop: Loop) -> None:
    """Turn the loop until it has taken a change in; the page's request is on its way."""
    for _ in range(100):
        if loop.step().changes:
            return
        time.sleep(0.05)
    pytest.fail("no change arrived")


def test_before_the_first_batch_the_page_says_what_it_waits_for(page: Page) -> None:
    class Waiting(RecordingRuntime):
        def observe(self) -> Snapshot:
            raise NotReadyError("no query of the application has finished a batch yet")

    loop = a_loop()
    loop.runtime = Waiting(FakeClock(START_S), lambda now_s, desired: None)  # type: ignore[arg-type,return-value]
    shown = LivePage(loop, title="shop")
    with PageServer(shown, Address()) as server:
        page.goto(server.url)
        expect(page.locator("#query-charts")).to_contain_text("looks for the first time after one interval")
        loop.step()
        expect(page.locator("#query-charts")).to_contain_text(
            "no query of the application has finished a batch yet"
        )
        expect(page.locator("#now")).to_contain_text("nothing was done because no query of the application")


def test_without_the_token_nothing_can_be_changed(page: Page) -> None:
    loop = a_loop()
    shown = LivePage(loop, title="shop")
    loop.step()
    with PageServer(shown, Address()) as server:
        page.goto(server.url)
        expect(page.locator("#status")).to_have_text("live")
        expect(page.locator("#mode")).to_be_disabled()
        assert page.get_by_role("button", name="change goal").count() == 0


def test_names_with_markup_are_shown_and_not_obeyed(page: Page, tmp_path: Path) -> None:
    history = History(title=MARKUP, version="1")
    loop = a_loop()
    loop.subscribers.append(history)
    loop.run(for_s=130.0)
    text = json.dumps(history.document(), default=str)
    document = json.loads(text.replace("orders", MARKUP + "</script>").replace('"n0"', f'"{MARKUP}"'))
    (tmp_path / "page.html").write_text(page_html(document, title=MARKUP), encoding="utf-8")
    page.goto((tmp_path / "page.html").as_uri())
    expect(page.locator("#title")).to_contain_text(MARKUP)
    expect(page.locator("#executor-table")).to_contain_text(MARKUP)
    assert page.locator("img").count() == 0


def test_narrow_and_dark(browser: Browser, recorded: Path) -> None:
    for scheme in ("light", "dark"):
        context = browser.new_context(viewport={"width": 390, "height": 800}, color_scheme=scheme)  # type: ignore[arg-type]
        tab = context.new_page()
        tab.goto(recorded.as_uri())
        expect(tab.locator("#query-charts canvas")).to_have_count(4)
        assert tab.evaluate("document.documentElement.scrollWidth") <= 390
        dark = tab.evaluate("getComputedStyle(document.body).backgroundColor") != "rgb(245, 246, 248)"
        assert dark == (scheme == "dark")
        context.close()


def test_a_day_of_a_thousand_partitions_is_a_small_page(page: Page, tmp_path: Path) -> None:
    history = History(title="day", version="1")
    loop = a_loop(partitions=1000)
    loop.step()
    loop.subscribers.append(history)
    cycle = loop.step()
    snapshot = loop.runtime.observe()
    for turn in range(int(DAY_S / 5)):
        assert cycle.brief is not None
        now_s = START_S + 5.0 * turn
        brief = replace(cycle.brief, time_s=now_s)
        history(
            replace(cycle, number=turn + 3, time_s=now_s, brief=brief), snapshot if turn % 500 == 0 else None
        )
    out = tmp_path / "day.html"
    out.write_text(page_html(history.document(points=2000)), encoding="utf-8")
    assert out.stat().st_size < 20e6
    began_s = time.monotonic()
    page.goto(out.as_uri())
    expect(page.locator("#placement .strip .cell")).to_have_count(1000)
    expect(page.locator("#query-charts canvas")).to_have_count(4)
    took_s = time.monotonic() - began_s
    print(f"a day, 1,000 partitions: {out.stat().st_size / 1e6:.2f} MB, shown after {took_s:.2f} s")
    assert took_s < 3.0


def test_a_journal_of_a_loop_that_runs_grows_on_its_page(page: Page, tmp_path: Path) -> None:
    from penstock.web.recorded import RecordedPage

    with SqliteJournal(tmp_path / "runs.sqlite") as journal:
        loop = a_loop(journal=journal)
        loop.step()
        with PageServer(RecordedPage(journal, run_called(journal, "last")), Address()) as server:
            page.goto(server.url)
            expect(page.locator("#status")).to_have_text("recorded")
            loop.run(for_s=120.0)
            expect(page.locator("#episodes")).to_contain_text("move orders.totals[0]", timeout=20_000)
