"""Tests of the page in a headless Chromium: ``scripts/test --adapters browser`` runs them. Where
there is none they say so and are skipped.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest

from benchmarks.workload import history
from foldlog.eventstore import Event, open_store
from foldlog.projections import Views
from tests.browser.chromium import BrowserUnavailable, Chromium, Page
from tests.browser.server import serving
from tests.browser.states import SIZES, report_of, sample
from tests.page_samples import usual_history

if os.environ.get("FOLDLOG_TEST_BROWSER") != "1":
    collect_ignore_glob = ["test_*.py"]  # a browser takes a minute, and not every machine has one


@pytest.fixture(scope="session")
def chromium() -> Iterator[Chromium]:
    try:
        browser = Chromium()
    except BrowserUnavailable as error:
        pytest.skip(f"{error}; on Debian: apt-get install chromium")
    yield browser
    browser.close()


@pytest.fixture
def page(chromium: Chromium, serve: object) -> Iterator[Page]:
    """A page, which ends before its server."""
    with chromium.new_page() as opened:
        yield opened


@pytest.fixture(params=SIZES)
def sized(chromium: Chromium, serve: object, request) -> Iterator[Page]:
    """A page of each size."""
    with chromium.new_page(*SIZES[request.param]) as opened:
        yield opened


@pytest.fixture
def serve() -> Iterator[Callable[[str], str]]:
    """``serve(url)``: the address of a server over a store, with its token. It ends with the
    test.
    """
    with ExitStack() as servers:
        yield lambda url: servers.enter_context(serving(url))[1]


@pytest.fixture(scope="session")
def pictures(tmp_path_factory) -> Path:
    """The folder of the screenshots: ``$FOLDLOG_SCREENSHOTS``, where it is given."""
    folder = Path(os.environ.get("FOLDLOG_SCREENSHOTS") or tmp_path_factory.mktemp("screenshots"))
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@pytest.fixture
def report(tmp_path) -> Callable[..., str]:
    """``report(events)``: the URL of a report of a conversation of these events."""

    return partial(report_of, tmp_path)


@pytest.fixture
def tidewatch(page: Page, report: Callable[..., str]) -> Page:
    """A page with a report of the sample."""
    page.open(report(sample()))
    return page


@pytest.fixture
def usual(page: Page, report: Callable[..., str]) -> Page:
    """A page with a report of a history with all that is usual."""
    page.open(report(usual_history()))
    return page


@pytest.fixture
def stored(tmp_path) -> Callable[..., str]:
    """``stored(name, events)``: put a conversation into the store of this test, and return the
    store's URL.
    """
    url = f"sqlite:///{tmp_path}/history.db"

    def put(name: str, events: Iterator[Event]) -> str:
        with open_store(url) as store:
            store.register(Views(store))
            store.ingest(name, iter(events))
        return url

    return put


@pytest.fixture(scope="session")
def long_report(tmp_path_factory) -> str:
    """The URL of a report of 100,000 events."""
    return report_of(tmp_path_factory.mktemp("long"), history(100_000), limit=30_000)
