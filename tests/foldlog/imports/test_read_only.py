"""In a store that is open for reading only, an imported conversation whose events are not made yet
looks as it will after its first use.
"""

import pytest

import foldlog
from foldlog._app.cli.verify_findings import Checks
from foldlog._imports.making_events import make_events
from foldlog.eventstore import StoreRefused
from foldlog.eventstore.maintenance.verify import verify
from foldlog.projections import Views
from tests.foldlog.imports.imports import KEYS, imported, open_with_imports
from tests.foldlog.records import lines_of
from tests.said import ids


@pytest.fixture(
    params=[
        pytest.param(("sqlite", None), id="sqlite"),
        pytest.param(("sqlite", KEYS), id="sqlite-encrypted", marks=pytest.mark.long),
        pytest.param(("postgresql", None), id="postgresql", marks=pytest.mark.long),
        pytest.param(("postgresql", KEYS), id="postgresql-encrypted"),
    ],
)
def opened(request, url_on):
    """A store that is opened for writing, and again for reading only."""
    database, keys = request.param
    url = url_on(database)
    with (
        open_with_imports(f"{url}&mode=rwc", keys=keys) as writing,
        open_with_imports(f"{url}&mode=ro", keys=keys) as reading,
    ):
        yield writing, reading


def session(folder, lines=None):
    """Write the first lines of a session, or all of them, to a file. Return its path."""
    path = folder / "session.jsonl"
    path.write_bytes(b"".join(lines_of("claude-code")[:lines]))
    return path


def shown(store, name):
    """Return what commands that only read show of a conversation."""
    histories = foldlog.Histories(store)
    history = histories[name]
    views = Views(store)
    return {
        "events": [*store.events(name)],
        "page": [*store.events(name, 3, 9)],
        "backwards": [*store.events(name, reverse=True)],
        "version": store.version(name),
        "view": [view.events for view in (history.view(), views.at(name, 5), history.at(9))],
        "again": ids(history.view().events),
        "why": history.why(3),
        "export": [*history.export()],
        "openai": [*history.export("openai-chat")],
        "attributes": history.attributes(),
        "tools": history.stats().document().tools,
        "found": sorted((hit.id, hit.snippet) for hit in histories.search("mars")),
    }


def test_a_conversation_is_shown_as_it_will_be_after_its_first_use(opened, tmp_path):
    writing, reading = opened
    name = imported(writing, session(tmp_path)).conversation
    first = shown(reading, name)
    again = shown(reading, name)
    assert writing.conversation(name, as_stored=True).unmade > 0
    assert first == again == shown(writing, name)
    assert writing.conversation(name, as_stored=True).unmade == 0
    assert shown(reading, name) == first
    with pytest.raises(StoreRefused, match="for reading only"):
        reading.append(name, (), expected_version=0)


def test_new_records_are_shown(opened, tmp_path):
    writing, reading = opened
    name = imported(writing, session(tmp_path, 12)).conversation
    before = shown(reading, name)
    imported(writing, session(tmp_path, 18))
    then = shown(reading, name)
    assert then["events"][: before["version"]] == before["events"]
    assert len(then["events"]) > len(before["events"])
    assert shown(writing, name) == then
    imported(writing, session(tmp_path))
    grown = shown(reading, name)
    assert len(grown["events"]) > len(then["events"])
    assert grown == shown(writing, name)


def test_several_logs_are_read_by_turns(opened, tmp_path):
    writing, reading = opened
    path = session(tmp_path)
    names = [imported(writing, path, prefix=f"{number}-").conversation for number in range(6)]
    logs = [reading.events(name) for name in names]
    read = [next(log) for log in logs]
    assert [[first, *log] for first, log in zip(read, logs, strict=True)] == [
        [*writing.events(name)] for name in names
    ]


def test_a_check_with_views_makes_no_events(opened, tmp_path):
    """An auditor must not change what is audited."""
    writing, _ = opened
    name = imported(writing, session(tmp_path)).conversation
    make_events(writing, name, leaves_last=True)
    before = writing.conversation(name, as_stored=True)
    assert before.version > 0
    assert before.unmade == 1
    checks = Checks()
    for _ in checks.with_views(
        writing, checks.count(verify(writing), lambda **_: None), repair=False
    ):
        pass
    assert (checks.findings, checks.not_checked) == ([], [])
    assert writing.conversation(name, as_stored=True) == before
