"""The newcomer's path of the guide, followed as it stands: `make newcomer` in a fresh clone, with a clock.

Commands and the program are read from docs/guide/getting-started.md, so what is timed is what is written.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import tempfile
import textwrap
import time
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "guide" / "getting-started.md"
LONGEST_S = 240.0


@dataclass(frozen=True, slots=True)
class Steps:
    """The steps: shell lines to set up, a program, the line that runs it, and those for afterwards."""

    set_up: str
    name: str
    program: str
    submit: str
    afterwards: str


def steps(page: Path = PAGE) -> Steps:
    """The numbered list of the guide."""
    text = page.read_text("utf-8")
    section = text.partition("## From nothing to a page with your own query")[2].partition("\n## ")[0]
    items = re.split(r"^\d\. ", section, flags=re.MULTILINE)[1:]
    found = re.search(r"this one is `(\S+)`:\n(.*)", items[1], re.DOTALL)
    if len(items) != 6 or found is None:
        raise ValueError(f"{page} has no six steps with a program in the second")
    shell = [re.findall(r"^        (\S.*)$", item, re.MULTILINE) for item in items]
    return Steps(
        set_up="\n".join(shell[0]),
        name=found[1],
        program=textwrap.dedent(found[2]).strip() + "\n",
        submit="\n".join(shell[2]),
        afterwards="\n".join(shell[5]),
    )


def follow(path: Steps, folder: Path) -> dict[str, Any]:
    """Steps 2 to 6 in a folder that has the `.venv`; what the page and the commands said."""
    (folder / path.name).write_text(path.program, encoding="utf-8")
    began_s = time.monotonic()
    with open(folder / "err", "wb") as err:
        # A shell of its own for the line, and a group of its own for Ctrl-C, which a terminal sends to all of it.
        process = subprocess.Popen(
            ["bash", "-c", f"exec {path.submit}"], cwd=folder, stdout=err, stderr=err, start_new_session=True
        )
    try:
        state = _page_with_a_query(process, folder / "err")
        seen_s = time.monotonic() - began_s
        os.killpg(process.pid, signal.SIGINT)
        code = process.wait(60)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    done = subprocess.run(
        ["bash", "-ec", path.afterwards], cwd=folder, capture_output=True, text=True, timeout=120, check=False
    )
    return {
        "seen_s": seen_s,
        "state": state,
        "code": code,
        "told": done.stdout,
        "problem": done.stderr[-2000:],
    }


def _page_with_a_query(process: subprocess.Popen[bytes], err: Path) -> dict[str, Any]:
    end_s = time.monotonic() + LONGEST_S
    while time.monotonic() < end_s and process.poll() is None:
        found = re.search(r"page (http://127\.0\.0\.1:\d+/)", err.read_text("utf-8", "replace"))
        if found is not None:
            with urllib.request.urlopen(f"{found[1]}api/state", timeout=30) as answer:
                state: dict[str, Any] = json.load(answer)
            if any(goal["latency_s"] is not None for goal in state["goals"]):
                return state
        time.sleep(0.3)
    raise TimeoutError(f"no page with a query:\n{err.read_text('utf-8', 'replace')[-3000:]}")


def main() -> None:
    """All six steps in a fresh clone of this repository; prints how long each part took."""
    path = steps()
    with tempfile.TemporaryDirectory(prefix="penstock-newcomer-") as folder:
        began_s = time.monotonic()
        env = {k: v for k, v in os.environ.items() if k not in ("VIRTUAL_ENV", "MAKEFLAGS", "MAKELEVEL")}
        # The last line prints where the steps have led to.
        lines = ["set -e", path.set_up, "pwd"]
        done = subprocess.run(
            ["bash", "-c", "\n".join(lines)],
            cwd=folder,
            env={**env, "REPOSITORY": str(ROOT)},
            capture_output=True,
            text=True,
            check=True,
        )
        set_up_s = time.monotonic() - began_s
        seen = follow(path, Path(done.stdout.strip().splitlines()[-1]))
        whole_s = time.monotonic() - began_s
    print(
        f"clone and set-up {set_up_s:.0f} s; from submit to a page with a measured query {seen['seen_s']:.0f} s"
    )
    print(f"all six steps {whole_s:.0f} s; the program ended with {seen['code']}")
    print(seen["told"])


if __name__ == "__main__":
    main()
