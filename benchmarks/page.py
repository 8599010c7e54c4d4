"""Measure the page of a history: making it, its size, opening it, and going through its versions.

The questions about the browser need a headless Chromium, which renders in software.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.frame import Question, Round, Scale
from benchmarks.prepared import prepared
from foldlog._page.report import write_report
from foldlog._page.texts import text_document
from foldlog.eventstore import open_store
from foldlog.projections import Views
from tests.browser.chromium import Chromium, find_program

_PAINT = (
    "performance.getEntriesByType('paint').find((one) => one.name ==="
    " 'first-contentful-paint')?.startTime"
)
_STEP = """(() => {
  const app = window.foldlog;
  app.go(app.version - 1);
  const began = performance.now();
  app.draw();
  return performance.now() - began;
})()"""
_STEPS = 60
_FRAME_MS = 1_000 / 60


def lifetimes(scale: Scale, folder: Path) -> Iterator[Round]:
    """Compute the lifetimes of all events. The baseline reads all events."""
    stores = prepared(folder.parent, scale.usual)
    with open_store(f"sqlite:///{stores.ours}?mode=ro") as store:
        views = Views(store)
        for _ in range(scale.rounds):
            began = time.perf_counter()
            views.lifetimes("c1")
            ours = time.perf_counter() - began
            began = time.perf_counter()
            for _ in store.events("c1"):
                pass
            yield Round(1_000 * ours, 1_000 * (time.perf_counter() - began))


def size(scale: Scale, folder: Path) -> Iterator[Round]:
    """Compare the size of the report's file with the size of the texts that it shows."""
    path = _report(folder, scale.events[1])
    with open_store(f"sqlite:///{prepared(folder.parent, scale.events[1]).ours}?mode=ro") as store:
        texts = sum(
            len(json.dumps(text_document(event), ensure_ascii=False))
            for event in store.events("c1")
        )
    # 1.2 times the texts and 300 kB
    yield Round(path.stat().st_size / 1e6, (texts + 250_000) / 1e6)


def first_paint(scale: Scale, folder: Path) -> Iterator[Round]:
    """Measure the first paint of a report. The baseline is an empty page of the same size."""
    path = _report(folder, scale.events[1])
    empty = folder / "empty.html"
    beginning = "<!doctype html><title>empty</title><p>empty</p><script type='text/plain'>"
    empty.write_text(f"{beginning}{'A' * path.stat().st_size}</script>")
    browser = Chromium()
    try:
        for _ in range(scale.rounds):
            yield Round(_paint(browser, path), _paint(browser, empty))
    finally:
        browser.close()


def stepping(scale: Scale, folder: Path) -> Iterator[Round]:
    """Measure the time to go to another version and draw it, on the page of a long history. The
    baseline is the time of one frame of a screen.
    """
    path = _report(folder, scale.usual)
    browser = Chromium()
    try:
        with browser.new_page() as page:
            page.open(path.as_uri())
            for _ in range(scale.rounds):
                # Each step is a separate request, because on a busy machine 60 steps in one request
                # exceed the time limit.
                yield Round(
                    statistics.median(float(page.ask(_STEP)) for _ in range(_STEPS)), _FRAME_MS
                )
    finally:
        browser.close()


def _report(folder: Path, length: int) -> Path:
    path = folder / f"{length}.html"
    if not path.exists():
        with open_store(f"sqlite:///{prepared(folder.parent, length).ours}?mode=ro") as store:
            write_report(store, "c1", path)
    return path


def _paint(browser: Chromium, path: Path) -> float:
    with browser.new_page() as page:
        page.send("Page.navigate", url=path.as_uri())
        page.wait(f"{_PAINT} && document.readyState === 'complete'")
        return float(page.ask(_PAINT))


_PAGE = "Lifetimes and the page"
_IN_A_BROWSER = [
    Question(
        "page: first paint", "ms", 3, "at most", first_paint, raw="an empty page of as many bytes"
    ),
    Question(
        "page: one step at 100,000 events", "ms", 4, "at most", stepping, "a frame of 1/60 s", _PAGE
    ),
]
QUESTIONS = [
    Question("lifetimes of all events", "ms", 2, "at most", lifetimes, "reading all events", _PAGE),
    Question(
        "page: size of the file", "MB", 1.2, "at most", size, raw="the shown texts, and 250 kB"
    ),
    *(_IN_A_BROWSER if find_program() else ()),
]
