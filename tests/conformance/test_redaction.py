"""Redaction on every recorder: the content of one event goes, everything else of it stays, and
readers learn of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from itertools import count
from typing import Any

import pytest
from msgspec.structs import replace
from pydantic import SecretStr

from foldlog import _redacting as redacting
from foldlog.eventstore import (
    ANY_VERSION,
    Action,
    CannotRedact,
    CondensationAction,
    DocumentChanges,
    Event,
    HistoryDiverged,
    IdempotencyConflict,
    InvalidArgument,
    InvalidEvent,
    Message,
    Observation,
    Origin,
    Redacted,
    Redaction,
    Store,
)
from foldlog.eventstore.documents.changes import Documents
from foldlog.eventstore.log import importing
from foldlog.eventstore.log.keys import KeyRing
from foldlog.eventstore.log.reading import ReadTransaction
from foldlog.eventstore.log.seal import WriteSettings
from foldlog.eventstore.maintenance.copy import compare_stores, copy_store
from foldlog.eventstore.maintenance.erase import erase
from foldlog.eventstore.maintenance.redact import Quote, RedactionReceipt, redact
from foldlog.eventstore.maintenance.rekey import rekey
from foldlog.eventstore.maintenance.verify import verify
from foldlog.eventstore.recorders.base import Reader
from foldlog.eventstore.recorders.types import as_rows
from foldlog.projections import Views, well_formed
from tests.between import Killed, killing, meeting
from tests.conformance.conftest import OpenRecorder

KEYS = KeyRing([SecretStr("5c" * 32)])
TURN: list[Event] = [
    Message(source="user", content="SECRET asked"),
    Action(
        tool="look",
        arguments={"for": "SECRET sought"},
        call_id="call-1",
        thought="SECRET thought",
        cause=0,
    ),
    Observation(
        tool="look", content="SECRET found", call_id="call-1", cause=1, extras={"x": "SECRET"}
    ),
    Message(source="agent", content="harmless"),
]


@pytest.fixture(params=[None, KEYS], ids=["plain", "encrypted"])
def store(request: pytest.FixtureRequest, open_recorder: OpenRecorder) -> Store:
    store = Store(open_recorder(), WriteSettings(keys=request.param))
    store.register(Views(store))
    store.append("c", TURN, expected_version=0, idempotency_key="SECRET key")
    return store


def redacted(
    store: Store, event_id: int, conversation: str = "c", *, with_summaries: bool = False
) -> RedactionReceipt:
    given: dict[str, Any] = {"reason": "asked to", "by": "me", "with_summaries": with_summaries}
    return redacting.redacted(store, conversation, [event_id], **given)


def stored(store: Store) -> bytes:
    """Everything that the tables hold of all conversations, of an encrypted one as the key shows
    it.
    """

    def read(reader: Reader) -> Iterator[bytes]:
        for found in [*reader.conversations("", 100)]:
            yield repr(
                ReadTransaction(reader, found, store.database).rows(
                    found.begins, found.version, 10_000
                )[:]
            ).encode()
            yield repr([*as_rows(reader.rows(found.key, 0, 10_000, 10_000))]).encode()
            yield repr(reader.recalled(found.key, "", 10_000)).encode()
            yield repr(
                [
                    reader.records(found.key, each.projection, 0, 100)
                    for each in reader.records(found.key, None, 0, 100)
                ]
            ).encode()

    return b"\n".join(store.database.recorder.query(lambda reader: list(read(reader))))


def problems(store: Store) -> list[str]:
    return [
        f"{each.conversation}: {finding}" for each in verify(store) for finding in each.findings
    ]


def test_the_content_goes_and_the_rest_of_the_event_stays(store: Store):
    before = list(store.events("c"))
    heads = [
        row.head for row in store.database.recorder.query(lambda reader: rows_of(store, reader))
    ]
    for event_id in (0, 1, 2):
        receipt = redacted(store, event_id)
        assert (receipt.event_ids, receipt.reason, receipt.by) == ((event_id,), "asked to", "me")
    assert b"SECRET" not in stored(store)
    assert (
        heads
        == [
            row.head for row in store.database.recorder.query(lambda reader: rows_of(store, reader))
        ][:4]
    )
    after = list(store.events("c"))
    for was, now in zip(before, after, strict=False):
        for field in ("id", "timestamp", "source", "cause", "shown", "tool", "call_id"):
            assert getattr(was, field, None) == getattr(now, field, None)
    assert [type(event) for event in after] == [*map(type, before), Redaction, Redaction, Redaction]
    assert [getattr(event, "content", None) for event in after[:4]] == [
        "[redacted]",
        None,
        "[redacted]",
        "harmless",
    ]
    assert after[3] == before[3]
    assert problems(store) == []


def rows_of(store: Store, reader: Reader) -> list[object]:
    found = store.database.find(reader, "c")
    assert found is not None
    return list(ReadTransaction(reader, found, store.database).rows(0, found.version, 100))


def test_the_view_of_the_process_shows_it_redacted_at_every_version_and_stays_fit(store: Store):
    views = Views(store)
    store.register(views)
    assert len(views.current("c")) == len(views.at("c", 4)) == 4
    for event_id in (2, 1, 0):
        redacted(store, event_id)
        for view in (views.at("c", 4), views.current("c"), views.at("c", 4)):
            (shown,) = [event for event in view if event.id == event_id]
            assert shown.redacted is not None
            assert len(well_formed(view)) == 4
    assert b"SECRET" not in repr(views.current("c").to_messages()).encode()
    call, result = views.current("c").to_messages()[1:3]
    assert call["tool_calls"][0]["id"] == result["tool_call_id"] == "call-1"
    assert call["tool_calls"][0]["function"]["name"] == "look"


def test_a_redaction_that_is_done_again_gives_the_first_receipt_and_adds_nothing(store: Store):
    first = redacted(store, 1)
    again = redact(store, "c", 1, reason="another", by="another")
    assert (again.hashes, again.reason, again.at) == (first.hashes, first.reason, first.at)
    assert again.position is None
    assert store.version("c") == 5


def test_a_retry_of_the_append_is_recognized_and_another_payload_is_not(store: Store):
    redacted(store, 0)
    redacted(store, 2)
    again = store.append("c", TURN, expected_version=0, idempotency_key="SECRET key")
    assert [one.event.id for one in again] == [0, 1, 2, 3]
    assert store.version("c") == 6
    for other in (
        [replace(TURN[0], content="SECRET askee!"), *TURN[1:]],  # of another size
        [*TURN[:3], Message(source="agent", content="harmful!")],  # that one is not redacted
        TURN[:3],
        [replace(TURN[0], source="environment"), *TURN[1:]],
    ):
        with pytest.raises(IdempotencyConflict):
            store.append("c", other, expected_version=0, idempotency_key="SECRET key")


def test_a_source_id_is_still_known_and_its_text_is_gone(store: Store):
    batch = [
        replace(event, origin=Origin(format="x", id=f"SECRET {n}")) for n, event in enumerate(TURN)
    ]
    store.append("dedupe", batch, expected_version=0, dedupe="origin")
    store.append("later", batch, expected_version=0)  # this one has no index yet
    for name in ("dedupe", "later"):
        redacted(store, 0, name)
        assert store.append(name, batch, expected_version=ANY_VERSION, dedupe="origin") == ()
        assert store.version(name) == 5
        assert next(iter(store.events(name))).origin == Origin(format="x")


def test_no_fork_takes_back_an_event_by_the_id_that_its_source_gave_it(
    store: Store, open_recorder: OpenRecorder
):
    batch = [
        replace(event, origin=Origin(format="x", id=f"SECRET {n}")) for n, event in enumerate(TURN)
    ]
    store.append("p", batch, expected_version=0, dedupe="origin")
    for fork in ("indexed", "early"):
        store.fork("p", 4, fork)
    store.append("indexed", batch[:1], expected_version=ANY_VERSION, dedupe="origin")
    redacted(store, 0, "p")
    for parent, fork in (("p", "late"), ("early", "of a fork"), ("late", "of a late one")):
        store.fork(parent, 4, fork)
    there = Store(open_recorder(), WriteSettings(keys=store.database.settings.keys))
    assert {moved.problem for moved in copy_store(store, there)} == {None}
    erase(store, "p", reason="asked for", detach_forks=True)
    for each in (store, there):
        for fork in ("indexed", "early", "late", "of a fork", "of a late one"):
            assert each.append(fork, batch, expected_version=ANY_VERSION, dedupe="origin") == (), (
                fork
            )
            with pytest.raises(HistoryDiverged):
                each.ingest(fork, [*TURN, batch[0]])
        assert b"SECRET 0" not in stored(each)


def test_a_copy_loses_what_its_source_has_redacted_since(store: Store, open_recorder: OpenRecorder):
    store.fork("c", 3, "f")
    there = Store(open_recorder(), WriteSettings(keys=store.database.settings.keys))
    there.register(Views(there))
    assert {moved.problem for moved in copy_store(store, there)} == {None}
    there.fork("c", 3, "own fork")
    there.append("own fork", Message(source="user", content="harmless"), expected_version=3)
    for event_id in (0, 1, 2):
        redacted(store, event_id)
        late = f"forked after {event_id}"
        store.fork("c", 4, late)
    assert {each.behind for each in compare_stores(store, there)} == {True}
    assert {moved.problem for moved in copy_store(store, there)} == {None}
    assert list(compare_stores(store, there)) == []
    assert b"SECRET" not in stored(there)
    for name in ("c", "f", "own fork", late):
        assert [event.redacted is not None for event in there.events(name, 0, 4)] == [True] * 3 + [
            False
        ] * (name != "f")
    assert problems(there) == []
    assert {moved.added for moved in copy_store(store, there)} == {0}


def test_a_copy_that_is_killed_anywhere_leaves_no_redaction_without_receipt(
    store: Store, open_recorder: OpenRecorder, monkeypatch: pytest.MonkeyPatch
):
    """Its source may be erased before it is copied again, so nothing may be left to a repetition."""
    monkeypatch.setattr(importing, "CHUNK", 2)
    there = Store(open_recorder(), store.database.settings)

    def copy_after_kills() -> None:
        for transactions in count(1):
            stopped = Store(killing(there.database.recorder, transactions), there.database.settings)
            with suppress(Killed):
                assert {moved.problem for moved in copy_store(store, stopped, jobs=1)} == {None}
                return
            assert problems(there) == []

    copy_after_kills()
    store.append("c", [TURN[0]] * 3, expected_version=4)  # one of them comes before its receipt
    for event_id in (0, 1, 4):
        redact(store, "c", event_id, reason="asked to", by="me", complete=False)
    copy_after_kills()
    assert b"SECRET" in stored(there)
    assert list(compare_stores(store, there)) == []
    assert problems(there) == []


def test_a_redaction_during_a_copy_has_its_receipt(store: Store, open_recorder: OpenRecorder):
    there = Store(open_recorder(), store.database.settings)

    def redact_now() -> None:
        redact(store, "c", 3, reason="asked to", by="me", complete=False)

    between = meeting(store.database.recorder, 2, redact_now, "query")  # before rows are read
    read = Store(between, store.database.settings)
    assert [moved.problem for moved in copy_store(read, there, "c")] == [None]
    assert [event.redacted is not None for event in there.events("c")] == [False] * 3 + [True]
    assert problems(there) == []
    assert b"harmless" not in stored(there)


def test_summaries_that_stand_for_it_are_named_and_redacted_when_asked(store: Store):
    store.append(
        "c",
        CondensationAction(forgotten_event_ids=[1, 2], summary="SECRET sum", summary_offset=1),
        expected_version=4,
    )
    store.append("c", Message(source="user", content="x"), expected_version=5)
    store.append(
        "c",
        CondensationAction(forgotten_event_ids=[-6, 3], summary="SECRET of sums", summary_offset=1),
        expected_version=6,
    )
    store.append(
        "c",
        CondensationAction(forgotten_event_ids=[5], summary="of x", summary_offset=1),
        expected_version=7,
    )
    assert redacted(store, 0).quotes == ()
    assert redacted(store, 1).quotes == (
        Quote("c", 4, redacted=False),
        Quote("c", 6, redacted=False),
    )
    receipt = redacted(store, 2, with_summaries=True)
    assert receipt.event_ids == (2, 4, 6)
    assert receipt.quotes == (Quote("c", 4, redacted=True), Quote("c", 6, redacted=True))
    assert redacted(store, 2).quotes == receipt.quotes, "they are redacted already"
    assert redacted(store, 3).quotes == redacted(store, 4).quotes == (Quote("c", 6, redacted=True),)
    assert b"SECRET" not in stored(store)
    assert [getattr(e, "content", None) for e in Views(store).current("c")] == [
        "[redacted]",
        "of x",
        "[redacted]",
    ]
    assert [getattr(e, "content", None) for e in Views(store).at("c", 7)] == [
        "[redacted]",
        "[redacted]",
        "x",
    ]
    assert problems(store) == []


def test_what_others_append_after_the_choice_is_redacted_too(
    store: Store, monkeypatch: pytest.MonkeyPatch
):
    store.fork("c", 4, "f")
    quote = CondensationAction(forgotten_event_ids=[0], summary="SECRET late", summary_offset=1)
    copy = Message(source="user", content="it said SECRET asked")
    late = iter([[("c", quote), ("c/+beside", copy)], [("f", quote)]])
    choose = redacting.all_that_goes

    def choose_then_append(*given: Any, **how: Any) -> dict[str, list[Event]]:
        chosen = choose(*given, **how)
        for name, event in next(late, []):
            store.append(name, event, expected_version=ANY_VERSION)
        return chosen

    monkeypatch.setattr(redacting, "all_that_goes", choose_then_append)
    receipt = redacted(store, 0, with_summaries=True)
    quotes = [("c", 4), ("c/+beside", 0), ("f", 4)]
    assert sorted(receipt.quotes) == [
        Quote(name, event_id, redacted=True) for name, event_id in quotes
    ]
    assert (receipt.event_ids, receipt.position is None) == ((0, 4), False)
    assert b"SECRET late" not in stored(store)
    assert b"SECRET asked" not in stored(store)
    assert problems(store) == []


def test_the_id_of_a_summary_stands_for_its_condensation(store: Store):
    store.append(
        "c",
        CondensationAction(forgotten_event_ids=[1, 2], summary="SECRET sum", summary_offset=1),
        expected_version=4,
    )
    for _ in range(2):
        assert redacted(store, -6).event_ids == (4,)
    assert b"SECRET sum" not in stored(store)
    for wrong in (-1, -5, -60):
        with pytest.raises(InvalidArgument, match=f"'c' has no event {wrong}[:;]"):
            redacted(store, wrong)
    assert problems(store) == []


def test_forks_show_it_and_their_summaries_are_named(store: Store):
    views = Views(store)
    store.register(views)
    store.fork("c", 3, "f")
    store.fork("f", 2, "g")
    store.fork("c", 1, "h")
    store.append(
        "f",
        CondensationAction(forgotten_event_ids=[1, 2], summary="SECRET sum", summary_offset=1),
        expected_version=3,
    )
    store.append("g", Message(source="user", content="on g"), expected_version=2)
    seen = {name: len(views.current(name)) for name in "cfgh"}
    receipt = redacted(store, 1, with_summaries=True)
    assert receipt.forks == ("f", "g")
    assert receipt.quotes == (Quote("f", 3, redacted=True),)
    assert redacted(store, 1).quotes == receipt.quotes, "it is redacted already"
    assert {name: len(views.current(name)) for name in "cfgh"} == seen
    assert views.current("g").events[1].redacted is not None
    assert views.current("f").events[1].content == "[redacted]"
    with pytest.raises(
        InvalidArgument,
        match="belongs to conversation 'c', from which 'g' was forked; redact the event there",
    ):
        redacted(store, 1, "g")
    redacted(store, 0)
    redacted(store, 2)
    assert b"SECRET" not in stored(store)
    assert problems(store) == []
    assert [str(finding) for each in verify(store, "g") for finding in each.findings] == []
    erase(store, "c", reason="asked for", detach_forks=True)
    assert views.current("g").events[1].redacted is not None
    assert problems(store) == []


def test_only_a_redaction_writes_redacted_events_and_receipts(store: Store):
    receipt = redacted(store, 0)
    for event in (
        next(iter(store.events("c"))),
        Redaction(event_ids=(1,), hashes=("",), by="", reason=""),
    ):
        for write in (
            store.ingest,
            lambda name, events: store.append(name, events, expected_version=ANY_VERSION),
        ):
            with pytest.raises(InvalidEvent, match="which only a redaction may write"):
                write("other", [replace(event, id=-1)])
    with pytest.raises(CannotRedact, match="it is a receipt"):
        redacted(store, 4)
    with pytest.raises(InvalidArgument, match="has no event 5; it has events 0 to 4"):
        redacted(store, 5)
    with pytest.raises(InvalidArgument, match="has no event -2"):
        redacted(store, -2)
    assert isinstance(next(iter(store.events("c"))).redacted, Redacted)
    assert receipt.hashes == (next(iter(store.events("c"))).redacted.hash,)


def imported(place: int, text: str, **fields: Any) -> Message:
    return Message(source="user", content=text, origin=Origin(format="f", id=f"u{place}"), **fields)


def test_an_import_brings_no_redacted_content_back(store: Store):
    """What was redacted is refused, also where the history has grown: its content would come back
    with the rest.
    """
    history: list[Event] = [imported(n, f"SECRET {n}") for n in range(3)]
    store.ingest("i", history)
    redacted(store, 1, "i")
    for source in (
        history,
        [*history, imported(3, "new")],
        [*history, imported(3, "new"), history[1]],
    ):
        with pytest.raises(
            HistoryDiverged, match="has the content of event 1, which was redacted in this store"
        ) as diverged:
            store.ingest("i", source)
        assert (diverged.value.event_id, diverged.value.version) == (1, 4)
    with pytest.raises(HistoryDiverged, match="differs from event 0 on"):
        store.ingest("i", [imported(0, "another"), *history[1:]])
    assert store.ingest("i", history[:1]) == (0, 4), "it ends before the redacted event"


def test_a_document_goes_unless_a_later_value_builds_on_it(store: Store):
    documents = Documents(store)

    def change(values: dict[str, object]) -> None:
        documents.append("c", (), values, expected_version=ANY_VERSION)

    change({"notes": {"said": "SECRET " * 100, "n": 1}, "attributes": {"title": "SECRET"}})
    change({"notes": {"said": "SECRET " * 100, "n": 2}})
    first, second = (event.id for event in store.events("c") if isinstance(event, DocumentChanges))
    with pytest.raises(
        CannotRedact, match=f"event {second} stores document 'notes' as a difference to it"
    ):
        redacted(store, first)
    redacted(store, second)
    redacted(store, first)
    assert documents.all("c") == {"attributes": {}, "notes": "[redacted]"}
    change({"notes": "new"})
    assert documents.get("c", "notes") == "new"
    for event_id in (0, 1, 2):
        redacted(store, event_id)
    assert b"SECRET" not in stored(store)
    assert problems(store) == []


def test_attributes_that_forks_share_go_where_keys_are_new(store: Store):
    documents = Documents(store)
    documents.append("c", (), {"attributes": {"title": "SECRET"}}, expected_version=ANY_VERSION)
    shared = store.version("c") - 1
    store.fork("c", shared + 1, "f")
    store.fork("f", shared + 1, "g")
    keyed = Store(store.database.recorder, WriteSettings(keys=KEYS))  # its first write encrypts
    assert redacted(keyed, shared).forks == ("f", "g")
    assert [Documents(keyed).get(name, "attributes") for name in "cfg"] == [{}, {}, {}]
    assert problems(keyed) == []


def test_copies_and_rekeying_carry_it(store: Store, open_recorder: OpenRecorder):
    store.fork("c", 2, "f")
    store.append("f", Message(source="user", content="on f"), expected_version=2)
    for event_id in (0, 1, 2):
        redacted(store, event_id)
    seen = {name: list(store.events(name)) for name in "cf"}
    there = Store(open_recorder(), WriteSettings())
    assert {moved.problem for moved in copy_store(store, there)} == {None}
    assert list(compare_stores(store, there)) == []
    again = Store(open_recorder(), WriteSettings(keys=KEYS))
    assert {moved.problem for moved in copy_store(there, again)} == {None}
    for other in (there, again):
        assert {name: list(other.events(name)) for name in "cf"} == seen
        assert problems(other) == []
        retried = other.append("c", TURN, expected_version=0, idempotency_key="SECRET key")
        assert len(retried) == 4
    for settings in (WriteSettings("zstd", KEYS), WriteSettings("zlib", KEYS)):
        changed = Store(there.database.recorder, settings)
        assert not any(each.damaged for each in rekey(changed))
        assert {name: list(changed.events(name)) for name in "cf"} == seen
        assert problems(changed) == []
    redacted(changed, 3)
    assert problems(changed) == []
    assert b"SECRET" not in stored(changed)
