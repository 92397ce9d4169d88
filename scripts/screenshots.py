"""Write the screenshots of the docs: `make screenshots`. The run they show is made up and the same every time."""

from __future__ import annotations

import tempfile
from pathlib import Path

from tests.web.browser import launched
from tests.web.runs import a_journal

from penstock.web.recorded import run_called, write_page

OUT = Path(__file__).resolve().parents[1] / "docs" / "images"
SHOTS = (
    ("page-light", "light", 1360, 900),
    ("page-dark", "dark", 1360, 900),
    ("page-narrow", "light", 400, 860),
)


def main() -> None:
    """One picture per theme, and one of a narrow screen."""
    OUT.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, launched() as browser:
        with a_journal(Path(folder) / "runs.sqlite", cycles=240, partitions=48) as journal:
            write_page(journal, run_called(journal, "last"), Path(folder) / "page.html")
        for name, scheme, width, height in SHOTS:
            context = browser.new_context(
                viewport={"width": width, "height": height}, color_scheme=scheme, timezone_id="UTC"
            )
            page = context.new_page()
            page.goto((Path(folder) / "page.html").as_uri())
            page.get_by_role("button", name="actions").click()
            page.locator("#episodes summary").first.click()
            page.screenshot(path=OUT / f"{name}.png")
            context.close()


if __name__ == "__main__":
    main()
