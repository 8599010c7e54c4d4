"""Measure the page of a history in a headless Chromium, which renders in software."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

from benchmarks.frame import Question, Round, Scale, Timed, by_turns, not_compared
from benchmarks.prepared import prepare_stores
from foldlog._app.page.report import write_report
from foldlog.eventstore import open_store
from tests.browser.chromium import Chromium

_PAINT = (
    "performance.getEntriesByType('paint').find((one) => one.name ==="
    " 'first-contentful-paint')?.startTime"
)


def first_paint(scale: Scale, folder: Path) -> Iterator[Round]:
    """Measure the first paint of a report. The baseline is an empty page of the same size."""
    path = _report(folder, scale.usual)
    empty = folder / "empty.html"
    beginning = "<!doctype html><title>empty</title><p>empty</p><script type='text/plain'>"
    empty.write_text(f"{beginning}{'A' * path.stat().st_size}</script>")
    with closing(Chromium()) as browser:
        sides = [partial(_paint, browser, page) for page in (path, empty)]
        yield from by_turns(scale, *sides, same=not_compared)


def _report(folder: Path, length: int) -> Path:
    path = folder / f"{length}.html"
    with open_store(f"{prepare_stores(folder.parent, length).url}?mode=ro") as store:
        write_report(store, "c1", path)
    return path


def _paint(browser: Chromium, path: Path) -> Timed:
    with browser.new_page() as page:
        page.send("Page.navigate", url=path.as_uri())
        page.wait(f"{_PAINT} && document.readyState === 'complete'")
        return Timed(float(page.ask(_PAINT)) / 1_000, None)


QUESTIONS = [
    Question("page: first paint", "ms", 2.0, first_paint, "an empty page of as many bytes"),
]
