"""The newcomer's path of the guide, from the program to its page and its explanation, as it stands there."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from scripts.newcomer import follow, steps

from tests.conftest import REPOSITORY

pytestmark = pytest.mark.spark


def test_the_steps_lead_to_a_page_with_the_query(tmp_path: Path) -> None:
    (tmp_path / ".venv").symlink_to(REPOSITORY / ".venv")
    path = steps()
    assert path.set_up.splitlines()[0].startswith("git clone ")
    seen = follow(path, tmp_path)
    assert [query["name"] for query in seen["state"]["queries"]] == ["orders"]
    assert seen["state"]["detail"]["executors"]
    assert seen["code"] == -signal.SIGINT
    assert "orders" in seen["told"], seen["problem"]
    assert "shop.html" in seen["told"]
    assert (tmp_path / "shop.html").stat().st_size > 10_000
