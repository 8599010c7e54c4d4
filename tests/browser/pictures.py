"""Make the pictures of the page in ``docs/pictures`` from the shipped sample: ``python -m
tests.browser.pictures``.

It needs a Chromium, as the tests of this folder do. Run it after a change of the page's look, and
look at both.
"""

import sys
import tempfile
from pathlib import Path

from tests.browser.chromium import Chromium
from tests.browser.states import report_of, sample

FOLDER = Path(__file__).parents[2] / "docs" / "pictures"
WIDTH = 1280
HEIGHT = 800
LIMIT = 20_000
READY = "document.querySelector('.stored') && !document.querySelector('.block-of .waiting')"
MOMENTS = {"run": "#v=93&e=93&tab=transcript", "page": "#v=246&e=30&tab=memory"}


def make(folder: Path) -> list[Path]:
    """Write the pictures into a folder, and return their paths."""
    browser = Chromium()
    try:
        with tempfile.TemporaryDirectory() as folder_of_report:
            report = report_of(Path(folder_of_report), sample(), "tidewatch", limit=LIMIT)
            pictures = []
            for name, moment in MOMENTS.items():
                with browser.new_page(WIDTH, HEIGHT) as page:
                    page.open(report + moment)
                    page.wait(READY)
                    pictures.append(page.screenshot(folder / f"{name}.png"))
            return pictures
    finally:
        browser.close()


if __name__ == "__main__":
    for path in make(FOLDER):
        sys.stdout.write(f"{path}\n")
