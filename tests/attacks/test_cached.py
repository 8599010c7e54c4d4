"""What readers cache beside events can be changed by an operator: ``store verify --views`` compares
it with the events.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

import foldlog
from foldlog._app.cli.verify_findings import Checks
from foldlog._app.server import pages
from foldlog._history.to_resume import _AWAITED, OPEN_CALLS, find_wrong_open_calls
from foldlog._imports.making_events import make_events
from foldlog._reports.figures.view_tokens import ViewMeasuring
from foldlog._reports.records.compared_imports import verify_with_records
from foldlog.eventstore import open_store
from foldlog.eventstore.cached_values import CachedValues
from foldlog.eventstore.proof.checkpoint import make_checkpoint
from foldlog.eventstore.proof.signed_note import StoreCheckpoint
from foldlog.projections import Views
from tests.attacks.made_store import reply, user
from tests.attacks.operators import SQLiteOperator
from tests.commands import run_foldlog

Forge = Callable[[bytes], bytes]


@pytest.fixture(autouse=True)
def long_conversations(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "_LONG", 3)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "store.db"
    with foldlog.open(path, condenser={"type": "digest", "max_size": 8, "keep_first": 1}) as all_:
        history = all_["chat"]
        for number in range(5):
            history.append(
                [
                    user(f"look at src/file{number}.py " + "and tell me all that it says " * 20),
                    user("now"),
                ]
            )
            history.step()
        history.append_reply(reply(None, ("k", "transfer")))
        assert [*all_.to_resume()] == ["chat"]
        row = all_.store.conversation("chat")
        ViewMeasuring(all_.store, row).sizes(Views(all_.store))
        documents = pages.Pages(all_.store)
        documents.history("chat")
        documents.dropped("chat")
        pages.Pages(all_.store, 9_000).history("chat")  # serve --agent-limit 9000
    return path


def findings(path: Path, note: StoreCheckpoint) -> list[str]:
    checks = Checks()
    with open_store(path) as store:
        compared = checks.count(verify_with_records(store, note), lambda **_: None)
        for _ in checks.with_views(store, compared, repair=False):
            pass
    assert checks.not_checked == []
    return [text for _, text in checks.findings]


def other_title(body: bytes) -> bytes:
    return json.dumps({**json.loads(body), "title": "burn it"}).encode()


def other_tokens(body: bytes) -> bytes:
    document = json.loads(body)
    document["events"]["tokens"][0] += 1
    return json.dumps(document).encode()


def no_condensations(body: bytes) -> bytes:
    return json.dumps({**json.loads(body), "condensations": []}).encode()


def other_measures(number: int, new: object) -> Forge:
    def forge(body: bytes) -> bytes:
        measures = msgspec.msgpack.decode(body)
        measures[number] = new if new is not None else measures[number][:-4] + b"\1\1\0\0"
        return msgspec.msgpack.encode(measures)

    return forge


def change_record(path: Path, projection: str, forge: Forge) -> None:
    """Change the body of the only record of a projection, as an operator can."""
    operator = SQLiteOperator(path)
    [row] = [row for row in operator.rows("records") if row["projection"] == projection]
    body = forge(bytes(row["body"]))
    assert body != bytes(row["body"])
    changed = operator.with_right_checksum({**row, "body": body})
    operator.update("records", row, body=body, checksum=changed["checksum"])
    operator.close()


@pytest.mark.parametrize(
    "projection, forge, problem",
    [
        ("page", other_title, "the stored document of its page"),
        ("page 9000", other_title, "the stored document of its page"),
        ("page", other_tokens, "the stored document of its page"),
        ("needed again", no_condensations, "the stored list of terms that it needed again"),
        ("open_calls", lambda body: b"0", "the stored number of its open calls"),
        ("view_sizes", other_measures(1, None), "the stored sizes of its Views"),
        ("view_sizes", other_measures(2, None), "the stored sizes of its Views"),
        ("view_sizes", other_measures(3, [[[1, 999_999]]]), "the stored sizes of its Views"),
    ],
)
def test_changed_cache_is_found(path: Path, projection: str, forge: Forge, problem: str) -> None:
    with open_store(path) as store:
        note = make_checkpoint(store)
    assert findings(path, note) == []
    change_record(path, projection, forge)
    [found] = findings(path, note)
    assert found.startswith(problem)
    assert run_foldlog("store", "verify", "--views", "--repair", "--db", str(path)) == 0
    assert findings(path, note) == []


@pytest.mark.parametrize(
    "forge",
    [lambda body: b"no measures", other_measures(1, b"\1"), other_measures(2, b"")],
    ids=["another form", "part of a number", "no sizes"],
)
def test_measures_that_cannot_be_read_are_made_again(path: Path, forge: Forge) -> None:
    with open_store(path) as store:
        note = make_checkpoint(store)
        measured = foldlog.Histories(store)["chat"].stats().view_tokens
    change_record(path, "view_sizes", forge)
    assert findings(path, note) == []
    with foldlog.open(path) as histories:
        assert histories["chat"].stats().view_tokens == measured
        assert len(measured) == histories["chat"].version() + 1


def test_pages_of_two_limits_are_cached_apart(path: Path) -> None:
    with open_store(path) as store:
        shown = [pages.Pages(store, limit).history("chat").limit for limit in (None, 9_000, 7_000)]
    assert shown == [None, 9_000, 7_000]


def test_changed_cache_of_an_import_that_grew_is_found(tmp_path: Path) -> None:
    """The last record of the source has no event yet, and the check makes none."""
    path = tmp_path / "store.db"
    (tmp_path / "session.json").write_text(json.dumps({"messages": [user("look"), user("now")]}))
    with foldlog.open(path) as all_:
        all_.import_(tmp_path / "session.json", conversation="grown")
        make_events(all_.store, "grown", leaves_last=True)
        row = all_.store.conversation("grown", as_stored=True)
        assert (row.version, row.unmade) == (1, 1)
        with CachedValues(all_.store, OPEN_CALLS, _AWAITED) as counts:
            counts.keep(row, 0)
        row = all_.store.conversation("grown", as_stored=True)
        assert [*find_wrong_open_calls(all_.store, Views(all_.store), row)] == []
        assert [*all_.to_resume()] == []
        with CachedValues(all_.store, OPEN_CALLS, _AWAITED) as counts:
            counts.keep(row, 1)
        [problem] = find_wrong_open_calls(all_.store, Views(all_.store), row)
        assert problem.startswith("the stored number of its open calls")
        assert [*all_.to_resume()] == ["grown"]
