"""Bytes in events and documents on every recorder: they come back as they were, are kept once, and
go with what held them.
"""

from contextlib import closing
from copy import deepcopy
from hashlib import sha256
from random import Random

import pytest
from pydantic import SecretStr

from foldlog._reports.store_info import store_info
from foldlog.eventstore import (
    DELETED,
    Action,
    Annotation,
    CorruptEvent,
    Documents,
    HistoryDiverged,
    IdempotencyConflict,
    InvalidEvent,
    KeyRing,
    Message,
    Observation,
    Origin,
    Store,
)
from foldlog.eventstore.codec_json import attachments_of
from foldlog.eventstore.log import importing
from foldlog.eventstore.log.seal import WriteSettings
from foldlog.eventstore.maintenance.copy import compare_stores, copy_store
from foldlog.eventstore.maintenance.rekey import rekey
from foldlog.eventstore.maintenance.verify import verify
from foldlog.eventstore.recorders.sqlite import SQLiteRecorder
from foldlog.projections import Views
from tests.conformance.conftest import KEYS
from tests.privacy import erased, redacted
from tests.said import ids, said, say
from tests.sound import assert_sound
from tests.stored_rows import execute

OTHER_KEYS = KeyRing([SecretStr("6d" * 32), SecretStr("5c" * 32)])
_random = Random(1)
IMAGE = _random.randbytes(20_000)
OTHER_IMAGE = _random.randbytes(20_000)
SMALL = b"\x00\xff"
SETTINGS = {
    "plain": WriteSettings(),
    "zlib": WriteSettings("zlib"),
    "encrypted": WriteSettings(keys=KEYS),
    "encrypted zlib": WriteSettings("zlib", KEYS),
}


def picture(image):
    """Return the content of a message that shows an image."""
    return ({"type": "image_url", "image_url": {"url": image}},)


TURN = [
    said(picture(IMAGE)),
    Action(
        tool="look",
        arguments={"at": [SMALL, {"lone \udcff": b""}], "$bytes": [{"at": ["x"]}]},
        call_id="1",
    ),
    Observation(
        tool="look",
        call_id="1",
        content=({"type": "text", "text": "x", "data": IMAGE},),
        extras={"n": 1},
    ),
    Annotation(name="raw", data=b"zeros" * 1_000, meta={"k": (SMALL, 1)}, extra={"later": SMALL}),
    Message(
        source="agent",
        content="no bytes",
        origin=Origin(format="f", id=1, rest={"raw": SMALL, "n": 1e400}),
    ),
]
TARGETS = [*SETTINGS.values(), WriteSettings(keys=OTHER_KEYS)]
"""The settings to which a store is changed. A store is copied to all of them except the last."""


@pytest.fixture(params=SETTINGS)
def settings(request):
    return SETTINGS[request.param]


@pytest.fixture
def store(settings, open_recorder):
    store = Store(open_recorder(), settings)
    store.register(Views(store))
    return store


def values(events):
    """Return the value with bytes of each event."""
    values_read = []
    for event in events:
        match event:
            case Action(arguments=value) | Annotation(data=value):
                values_read.append(value)
            case Message(origin=Origin(rest=value)):
                values_read.append(value)
            case Message(content=value) | Observation(content=value):
                values_read.append(value)
    return values_read


READ = deepcopy(values(TURN))
"""The values of the events in ``TURN``."""


def count_stored(store):
    """Return how many values the database keeps beside events."""
    return store_info(store).attachments


def put(store, **values):
    Documents(store).append("c", (), values)


def fresh(store):
    """Return another store on the same recorder. It has nothing in memory yet."""
    return Store(store.database.recorder, store.database.settings)


def test_bytes_follow_events_that_have_none(store):
    """An event without bytes takes a shorter way if the conversation is in memory. This
    conversation is not in memory.
    """
    for content in ("see", "see", "see", picture(IMAGE), picture(IMAGE)):
        say(store, "c1", content)
    assert values(fresh(store).events("c1"))[3:] == [READ[0], READ[0]]
    assert_sound(store)


def test_bytes_come_back_as_bytes(store):
    recorded = store.append("c", TURN, expected_version=0)
    assert values(entry.event for entry in recorded) == READ
    again = fresh(store)
    assert list(again.events("c")) == [entry.event for entry in recorded]
    assert values(again.events("c")) == READ
    assert type(READ[1]["at"][0]) is bytes
    assert [entry.event for entry in again.follow()] == [entry.event for entry in recorded]
    assert list(Views(again).current("c").events) == [
        event for event in again.events("c") if event.shown
    ]
    assert ids(again.events("c", reverse=True)) == [4, 3, 2, 1, 0]
    assert_sound(again)


def test_arguments_are_not_changed_or_shared(store):
    arguments = {"at": [SMALL, (SMALL, 1)]}
    (recorded,) = store.append("c", Action(tool="t", arguments=arguments), expected_version=0)
    assert arguments == {"at": [SMALL, (SMALL, 1)]}
    arguments["at"].append(b"more")
    assert recorded.event.arguments == {"at": [SMALL, [SMALL, 1]]}


def test_an_import_stores_equal_bytes_once(store, monkeypatch):
    monkeypatch.setattr(importing, "CHUNK", 100)
    history = [said(picture(IMAGE if n % 10 == 9 else SMALL)) for n in range(210)]  # three chunks
    store.ingest("c", history)
    assert count_stored(store) == 2
    assert store.ingest("c", [*history, said(picture(b"more"))]) == (1, 211)
    with pytest.raises(HistoryDiverged):
        store.ingest("c", [said(picture(b"others")), *history])
    assert values(store.events("c", 0, 1)) + values(store.events("c", 209)) == [
        picture(image) for image in (SMALL, IMAGE, b"more")
    ]


def test_the_event_limit_counts_bytes(open_recorder):
    store = Store(open_recorder(), event_bytes_max=10_000)
    with pytest.raises(
        InvalidEvent, match=r"takes 20,\d+ bytes; the maximum for one event is 10,000"
    ):
        say(store, "c", picture(IMAGE))
    say(store, "c", picture(IMAGE[:9_000]))


def test_our_markers_in_user_data_are_plain_values(store):
    forged = {"$bytes": [{"at": ["data"], "sha256": "0" * 64, "size": 1}], "$exact": "e30="}
    events = [
        Annotation(name="n", data=forged),
        Annotation(name="n", data=1, extra=forged),
        Annotation(name="n", data=SMALL, extra=forged),
    ]
    store.append("c", events, expected_version=0)
    again = list(fresh(store).events("c"))
    assert values(again) == [forged, 1, SMALL]
    assert [event.extra for event in again] == [{}, forged, forged]


def test_a_redaction_deletes_unshared_bytes(store):
    say(store, "c", picture(IMAGE), picture(IMAGE), picture(SMALL))
    put(store, state={"image": OTHER_IMAGE, "at": SMALL})
    put(store, state=DELETED)
    assert count_stored(store) == 3
    for event_id, remaining in ((0, 3), (1, 2), (3, 1)):
        redacted(store, "c", event_id)
        assert count_stored(store) == remaining
    assert values(fresh(store).events("c", 2, 3)) == [picture(SMALL)]
    assert "image" not in str(read(store, version=4))
    assert_sound(store)


def test_a_retry_of_redacted_bytes_is_recognized(store):
    say(store, "c", picture(IMAGE), idempotency_key="k")
    redacted(store, "c", 0)
    event, _ = store.events("c")
    assert event.redacted is not None
    assert event.redacted.bytes > len(IMAGE)
    assert len(say(store, "c", picture(IMAGE), idempotency_key="k")) == 1
    assert count_stored(store) == 0
    with pytest.raises(IdempotencyConflict):
        say(store, "c", picture(IMAGE[1:]), idempotency_key="k")


def test_forks_read_shared_and_own_bytes(store):
    store.append("c", TURN, expected_version=0)
    put(store, state=STATE)
    before = count_stored(store)
    store.fork("c", 6, "f")
    Documents(store).append("f", said(picture(b"own")), {"state": {**STATE, "more": b"fork"}})
    put(store, state={**STATE, "more": b"parent"})
    assert count_stored(store) == before + 3

    def check():
        again = fresh(store)
        assert values(again.events("f")) == [*READ, picture(b"own")]
        assert values(Views(again).current("f").events) == values(
            event for event in again.events("f") if event.shown
        )
        assert read(store, conversation="f") == {**STATE, "more": b"fork"}

    check()
    erased(store, "c", detach_forks=True)
    check()
    assert_sound(store)
    erased(store, "f")
    assert count_stored(store) == 0


def target_of(settings, shift, among=TARGETS):
    """Return the settings that come ``shift`` places after ``settings`` in the list ``among``."""
    return among[(list(SETTINGS.values()).index(settings) + shift) % len(among)]


@pytest.mark.parametrize("shift", [0, 1])
def test_copies_have_the_bytes(store, settings, open_recorder, shift):
    store.append("c", TURN, expected_version=0)
    say(store, "c", picture(IMAGE))
    other = Store(open_recorder(), target_of(settings, shift, TARGETS[:-1]))
    list(copy_store(store, other))
    assert values(fresh(other).events("c")) == [*READ, picture(IMAGE)]
    assert other.conversation("c").head == store.conversation("c").head
    assert count_stored(other) == count_stored(store)
    assert list(compare_stores(store, other)) == []
    assert_sound(other)


@pytest.mark.parametrize("shift", [1, 3])
def test_a_change_of_settings_keeps_the_bytes(store, settings, shift):
    target = target_of(settings, shift)
    store.append("c", TURN, expected_version=0)
    say(store, "c", *[picture(IMAGE)] * 40)
    head = store.conversation("c").head
    before = count_stored(store)
    decrypt = settings.keys is not None and target.keys is None
    both = target._replace(keys=settings.keys) if decrypt else target
    changed = Store(
        store.database.recorder, both._replace(compression=target.compression or "none")
    )
    assert [rekeyed.damaged for rekeyed in rekey(changed, decrypt=decrypt)] == [()]
    again = Store(store.database.recorder, target)
    assert values(again.events("c")) == READ + [picture(IMAGE)] * 40
    assert again.conversation("c").head == head
    assert_sound(again)
    assert count_stored(store) == before
    assert [rekeyed.rows for rekeyed in rekey(changed, decrypt=decrypt)] == [0]
    say(again, "c", picture(IMAGE))
    assert count_stored(store) == before


def stored_bytes(store):
    with store.database.recorder.read() as reader:
        conversation = store.database.find(reader, "c")
        for row in reader.rows(conversation.key, 0, 100, 100):
            for attachment in attachments_of(row.body):
                yield attachment.name + attachment.body


def test_encryption_hides_bytes_and_hashes(open_recorder):
    plain = Store(open_recorder())
    encrypted = Store(open_recorder(), WriteSettings(keys=KEYS))
    for store in (plain, encrypted):
        say(store, "c", picture(IMAGE))
    (readable,) = stored_bytes(plain)
    (hidden,) = stored_bytes(encrypted)
    for part in (IMAGE[:16], sha256(IMAGE).digest()):
        assert part in readable
        assert part not in hidden


def test_nothing_of_a_refused_append_is_kept(store):
    def refuse(reading):
        raise LookupError

    say(store, "c", picture(SMALL))
    with pytest.raises(InvalidEvent):
        store.append("c", [said(picture(IMAGE)), said(picture(IMAGE), cause=7)], expected_version=1)
    with pytest.raises(LookupError):
        store.append("c", said(picture(IMAGE)), expected_version=1, guard=refuse)
    with pytest.raises(InvalidEvent, match="attributes are a map of names to texts"):
        put(store, attributes={"title": IMAGE})
    assert count_stored(store) == 1


CHANGED = "CAST(iif(substr(body, 1, 1) = x'00', x'01', x'00') || substr(body, 2) AS BLOB)"
LONGER = "zeroblob(length(body) + 1)"


@pytest.fixture
def on_file(settings, tmp_path):
    """A store whose tables a test changes."""
    with closing(SQLiteRecorder(str(tmp_path / "store.db"))) as recorder:
        yield Store(recorder, settings)


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM attachments",
        "DELETE FROM attached",
        f"UPDATE attachments SET body = {CHANGED}",
        "UPDATE attachments SET encoding = encoding | 1",
        "UPDATE attached SET name = randomblob(32)",
    ],
)
def test_lost_or_changed_bytes_are_damage(on_file, statement):
    say(on_file, "c", picture(b"\x01" + IMAGE), "sound")
    execute(on_file.path, statement)
    again = fresh(on_file)
    with pytest.raises(CorruptEvent, match="missing or were changed"):
        list(again.events("c"))
    assert values(again.events("c", 1)) == ["sound"]
    findings = [finding for verdict in verify(again) for finding in verdict.findings]
    ranges = [(finding.first, finding.last) for finding in findings if finding.first is not None]
    assert ranges == [(0, 0)]
    with pytest.raises(CorruptEvent):
        list(again.follow())


@pytest.mark.parametrize("change", [CHANGED, LONGER])
def test_appends_replace_damaged_bytes(on_file, change):
    say(on_file, "c", picture(b"\x01" + IMAGE))
    execute(on_file.path, f"UPDATE attachments SET body = {change}")
    say(on_file, "c", picture(b"\x01" + IMAGE))
    assert values(fresh(on_file).events("c")) == [picture(b"\x01" + IMAGE)] * 2
    assert_sound(on_file)


def test_strangers_beside_an_event_are_ignored(on_file):
    say(on_file, "c", picture(IMAGE))
    for stranger in (
        "INSERT INTO attachments SELECT conversation, zeroblob(32), 9, x'00' FROM attachments",
        "INSERT INTO attached SELECT conversation, event, zeroblob(32), 9 FROM attached",
    ):
        execute(on_file.path, stranger)
    assert values(fresh(on_file).events("c")) == [picture(IMAGE)]
    changed = fresh(on_file)
    changed.database.settings = changed.database.settings._replace(compression="none")
    assert [rekeyed.rows for rekeyed in rekey(changed)] == [1]
    assert count_stored(on_file) == 1
    assert values(fresh(on_file).events("c")) == [picture(IMAGE)]
    assert_sound(on_file)


# -- in documents
# --------------------------------------------------------------------------------------------------

STATE = {
    "image": IMAGE,
    "blobs": [{"type": "msgpack", "at": SMALL}],
    "$bytes": [{"at": ["x"]}],
    "n": 1,
}


def read(store, name="state", conversation="c", version=None):
    return Documents(fresh(store)).get(conversation, name, version=version)


@pytest.mark.parametrize(
    "value", [STATE, IMAGE, [[SMALL]], {"lone": "\udcff", "at": b""}, {"n": 10**30, "at": SMALL}]
)
def test_documents_return_bytes_at_any_version(store, value):
    put(store, state=value)
    put(store, state={"changed": value}, other=1)
    assert read(store) == {"changed": value}
    assert read(store, version=1) == value
    assert type(read(store, "state", version=1)) is type(value)
    assert_sound(store)


@pytest.mark.parametrize("settings", ["plain", "encrypted zlib"], indirect=True)
def test_a_conversation_stores_equal_bytes_once(store):
    documents = Documents(store)
    documents.append("c", [said(picture(IMAGE)), said(picture(IMAGE))], {"state": {"image": IMAGE}})
    for n in range(70):
        documents.append("c", (), {"state": {"image": IMAGE, "turn": n, "copy": [IMAGE]}})
    assert count_stored(store) == 1
    assert read(store) == {"image": IMAGE, "turn": 69, "copy": [IMAGE]}
    put(store, state=DELETED)
    assert read(store, version=5)["image"] == IMAGE
    say(store, "d", picture(IMAGE))
    assert count_stored(store) == 2


def test_equal_documents_add_nothing(store):
    put(store, state=STATE)
    put(store, state=STATE)
    assert store.version("c") == 1
    put(store, state={**STATE, "image": IMAGE[:-1] + b"x"})
    put(store, text="AP8=")
    put(store, text=SMALL)
    assert store.version("c") == 4, "bytes are not the text that writes them in base64"
    assert read(store, "text") == SMALL


def test_a_retry_is_recognized_by_its_bytes(store):
    def append(image, state):
        documents = Documents(fresh(store))
        return documents.append("c", said(picture(image)), {"state": state}, idempotency_key="k")

    first = append(SMALL, STATE)
    assert append(SMALL, STATE) == first
    for image, state in ((IMAGE, STATE), (SMALL, {**STATE, "image": SMALL})):
        with pytest.raises(IdempotencyConflict):
            append(image, state)
