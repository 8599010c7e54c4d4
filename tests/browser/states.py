"""Every state in which the page and the server can be seen, one after the other, in one tab."""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from foldlog._app.page.report import write_report
from foldlog.eventstore import Action, Event, KeyRing, Message, Observation, open_store
from foldlog.eventstore.maintenance.redact import redact
from foldlog.projections import Views
from tests.browser.chromium import Page
from tests.browser.server import serving
from tests.foldlog.formats.reading import histories_at
from tests.foldlog.records import SAMPLE
from tests.page_samples import hostile_history, usual_history
from tests.said import said

SIZES = {"wide": (1440, 900), "small": (800, 600), "phone": (390, 844)}
THEMES = ("light", "dark")
V = "window.foldlog"
BUTTONS = "Array.from(document.querySelectorAll('button'))"
BLOCKS = (
    "Array.from(document.querySelectorAll('.transcript [data-event]'), (each) => each.innerText)"
)
READY = f"{BLOCKS}.length && !document.querySelector('.block-of .waiting')"


def sample() -> list[Event]:
    (history,) = histories_at(SAMPLE)
    return history.events


def home(page: Page, address: str, count: int) -> None:
    """Open the list of a server's conversations, and wait until so many are counted."""
    page.open(address)
    page.wait(f"{V}.counted === {count}")
    rest(page)


def rest(page: Page) -> None:
    """Wait until the list has asked again, as it does when its stream begins, and has all answers.
    An answer that comes later would draw a button anew while a test clicks on it.
    """
    page.wait(f"{V}.refreshes > 1")
    page.ask(f"{V}.follow()")  # The answers to earlier requests are not shown any more.
    page.settle()


def find(page: Page, words: str) -> None:
    """Search the events of the open history."""
    page.ask(f"{V}.find({json.dumps(words)})")
    page.wait(f"{V}.searched")
    page.settle()


def forked_report(folder: Path) -> str:
    """Return the URL of a report of a fork of a fork of the sample."""
    with open_store("memory:") as store:
        store.ingest("sample/tidewatch", sample())
        for parent, at, name in (
            ("sample/tidewatch", 96, "second try"),
            ("second try", 120, "third"),
        ):
            store.fork(parent, at, name)
            own = [
                event
                for event in usual_history()
                if isinstance(event, Message | Action | Observation)
            ]
            store.ingest(name, [*store.events(name), *own])
        write_report(store, "third", folder / "fork.html")
    return (folder / "fork.html").as_uri()


def states(page: Page, folder: Path, long_report: str) -> Iterator[str]:
    """Bring the page into each state, and yield the name of the state. ``long_report``: a report of
    100,000 events.
    """
    for name in _reports(page, folder, long_report):
        page.settle()
        yield name
        assert page.problems == [], name
    # what a browser says of a conversation that is not there, of a search that is refused, and of
    # a server that ended
    page.expected = ["404", "409", "ERR_CONNECTION_REFUSED", "ERR_INCOMPLETE_CHUNKED_ENCODING"]
    for name in _served(page, folder):
        page.settle()
        yield name


def report_of(
    folder: Path,
    events: Iterable[Event],
    name: str = "c",
    redacted: int | None = None,
    **options: Any,
) -> str:
    """Write a report of a conversation of these events, and return its URL."""
    path = folder / f"{name.replace('/', '-')}.html"
    with open_store("memory:") as store:
        store.ingest(name, iter(events))
        if redacted is not None:
            redact(store, name, redacted, reason="asked to, letter of 3 May", by="ana")
        write_report(store, name, path, **options)
    return path.as_uri()


def _reports(page: Page, folder: Path, long_report: str) -> Iterator[str]:
    url = report_of(folder, sample(), "sample/tidewatch", limit=20_000)
    page.open(url)
    yield "history"
    page.open(f"{url}#v=246&e=30")
    page.wait("document.querySelector('.stored')")
    yield "forgotten"
    page.open(f"{url}#v=281&from=280&e=280")
    page.wait("document.querySelector('.stored')")
    yield "compared"
    page.ask(f"{V}.compare(null)")
    page.run(f"{V}.choose(30)")
    for name in ("Expand all", "Plain text", "All events"):
        page.ask(f"{BUTTONS}.find((each) => each.textContent === '{name}').click()")
    page.wait(READY)
    page.ask("document.querySelector('.stored').open = true")
    yield "expanded"
    page.run(f"{V}.find('pytest fails')")
    yield "search"
    page.ask(f"{V}.find('nowhere to be found')")
    yield "no-hit"
    page.ask(f"{V}.help.showModal()")
    yield "help"
    page.open(report_of(folder, usual_history(), "usual"))
    for _ in range(3):
        page.press("ArrowLeft")
    yield "states"
    page.ask(
        f"{V}.choose(Array.from({V}.history.changes.values()).find((one) => one.kind ==="
        " 'retraction').id)"
    )
    page.wait("document.querySelector('.stored')")
    yield "retraction"
    page.ask(f"{V}.go(0, null)")
    yield "version-0"
    page.open(f"{report_of(folder, usual_history(), 'redacted', redacted=28)}#e=28")
    page.wait("document.querySelector('.knew dl')")
    yield "redacted"
    page.open(forked_report(folder))
    yield "fork"
    page.open(f"{url}#v=999")
    yield "no-version"
    page.open(report_of(folder, [said("only this")], "one"))
    yield "one-event"
    page.open(report_of(folder, hostile_history(), "hostile", limit=1_000))
    yield "hostile"
    page.open(f"{report_of(folder, hostile_history(), 'hostile')}#e=12")
    page.wait("document.querySelector('.stored')")
    yield "hostile-event"
    page.open(long_report)
    page.wait(f"{V}.history.version === 100000 && {BLOCKS}.length")
    yield "100000"
    page.ask(f"{V}.chart.setWindow(0, {V}.history.version + 1)")
    yield "100000-whole"


def _served(page: Page, folder: Path) -> Iterator[str]:
    empty, some, encrypted = (
        f"sqlite:///{folder}/{name}.db" for name in ("empty", "some", "encrypted")
    )
    key = "00" * 32
    histories = {"sample": sample(), "usual": usual_history(), "x" * 300: [said("one event")]}
    open_store(empty).close()
    with open_store(some) as store:
        store.register(Views(store))
        for name, events in histories.items():
            store.ingest(name, iter(events))
        store.fork("usual", 30, "another try")
    with open_store(encrypted, keys=KeyRing(key)) as store:
        store.ingest("secret", [said("a secret")])
    with serving(empty) as (_, address):
        page.open(address)
        yield "empty"
    with serving(some) as (_, address):
        base = address.split("?")[0]
        home(page, address, 4)
        yield "conversations"
        page.run(f"{V}.toggle('has', 'error')")
        page.wait(f"{V}.total === 1")
        yield "conversations-with-errors"
        page.open(f"{base}?compare=sample&with=usual")
        page.wait("document.querySelector('.steps-of')")
        yield "compared-runs"
        home(page, base, 4)
        page.search("pytest fails")
        page.wait("document.querySelector('.hit mark')")
        yield "conversations-search"
        page.type(" nowhere")
        page.wait("document.querySelector('.hits')?.innerText.includes('No event')")
        yield "conversations-no-hit"
        page.open(f"{base}?id=another%20try")
        page.wait(READY)
        yield "live"
        page.open(f"{base}?id=sample#tab=transcript&v=134&e=133")
        page.wait(
            "document.querySelector('.block-of.chosen') && !document.querySelector('.block-of"
            " .waiting')"
        )
        yield "transcript-error"
        page.ask(f"{V}.goToEvent(198)")
        page.wait(
            "document.querySelector('.cut details') && !document.querySelector('.block-of"
            " .waiting')"
        )
        page.ask("document.querySelector('.cut details').open = true")
        yield "transcript-cut"
        page.run(f"{V}.find('pytest fails')")
        yield "transcript-search"
        page.open(f"{base}?id=none")
        yield "error"
        page.open(f"{base}?id=usual")
    page.wait("document.querySelector('.live.lost')")
    yield "lost"
    with serving(encrypted, FOLDLOG_KEY=key) as (_, address):
        page.open(address)
        page.search("secret")
        page.wait("document.querySelector('.hits')?.innerText.includes('a secret')")
        yield "encrypted"
