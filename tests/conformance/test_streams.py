"""Streams: texts beside the log that are written piece by piece."""

from datetime import UTC, datetime, timedelta
from functools import partial
from types import SimpleNamespace

import pytest

from foldlog import Maintenance
from foldlog.eventstore import (
    ANY_VERSION,
    ConversationErased,
    ConversationNotFound,
    InvalidArgument,
    Store,
    StoreDamaged,
    StreamConflict,
    StreamNotFound,
)
from foldlog.eventstore.log import streams
from foldlog.eventstore.log.seal import WriteSettings
from foldlog.eventstore.maintenance.copy import copy_store
from foldlog.eventstore.maintenance.erase import erase
from foldlog.eventstore.maintenance.redact import redact
from foldlog.eventstore.maintenance.rekey import rekey
from foldlog.eventstore.maintenance.verify import verify
from tests.conformance.conftest import ENCRYPTS
from tests.said import said


@pytest.fixture
def store(recorder, settings):
    store = Store(recorder, settings)
    store.append("c", [said("hi"), said("who are you?")], expected_version=0)
    return store


def write(store, work, *, durable=True, conversation="c"):
    def in_transaction(transaction):
        writing = streams.open_stream_writing(store.database, transaction, conversation, None)
        result = work(writing)
        writing.end()
        return result

    return store.database.recorder.transact(in_transaction, durable=durable)


def begin(store, *texts, name="reply"):
    stream = write(store, lambda writing: streams.begin(writing, name, "text/plain"))
    for text in texts:
        stream = append(store, stream, text)
    return stream


def append(store, stream, text):
    body = text.encode()
    work = partial(
        streams.append, number=stream.number, begins=stream.end, units=len(body), body=body
    )
    return write(store, work, durable=False)


def close(store, stream):
    def also(writing):
        streams.close(writing, stream.number, end=stream.end)

    return store.append("c", said("I am"), expected_version=ANY_VERSION, also=also)[0]


def text_of(store, stream, after=0, limit=100):
    def read(reading):
        found = streams.find(reading, stream.number)
        chunks = reading.chunks(found, after, limit)
        return b"".join(chunk.body for chunk in chunks).decode()

    return store.query("c", read)


def newest(store, name="reply"):
    return store.query("c", lambda reading: streams.newest(reading, name))


def problems(store):
    return [str(finding) for verdict in verify(store) for finding in verdict.findings]


def test_a_reader_reads_on_after_a_unit(store):
    stream = begin(store, "I ", "am", " a kite")
    assert text_of(store, stream) == "I am a kite"
    assert text_of(store, stream, after=2) == "am a kite"
    assert text_of(store, stream, after=2, limit=1) == "am"
    assert text_of(store, stream, after=stream.end) == ""
    assert newest(store).end == 11
    assert problems(store) == []


def test_a_reply_and_the_end_of_its_stream_are_one_transaction(store):
    stream = begin(store, "I ", "am")
    recorded = close(store, stream)
    closed = newest(store)
    assert (closed.end, [*closed.event_ids]) == (4, [recorded.id])
    assert closed.closed_at is not None
    for late in (partial(append, store, stream, "!"), partial(close, store, stream)):
        with pytest.raises(StreamConflict, match="is closed; nothing was written"):
            late()
    assert store.version("c") == 3
    assert problems(store) == []


def test_two_writers_never_mix_their_texts(store):
    stream = begin(store, "I ")
    append(store, stream, "am")
    with pytest.raises(StreamConflict, match="ends at 4, because another writer") as caught:
        append(store, stream, "will be")
    assert caught.value.stream.end == 4
    with pytest.raises(StreamConflict, match="ends at 4"):
        close(store, stream)
    assert text_of(store, stream) == "I am"
    assert store.version("c") == 2


def test_a_chunk_that_was_rolled_back_is_not_remembered(store):
    stream = append(store, begin(store, "I "), "am")

    def fail(writing):
        streams.append(writing, stream.number, stream.end, 1, b"!")
        raise KeyError("after the chunk")

    with pytest.raises(KeyError):
        write(store, fail, durable=False)
    append(store, stream, " here")
    assert text_of(store, stream) == "I am here"


def test_a_deleted_stream_is_not_remembered(store):
    stream = append(store, begin(store, "I "), "am")
    write(store, lambda writing: writing.drop_stream(stream.number))
    with pytest.raises(StreamNotFound):
        append(store, stream, " here")


def test_a_name_has_one_open_stream(store):
    stream = begin(store, "a")
    with pytest.raises(StreamConflict, match="is open already"):
        begin(store)
    begin(store, name="another")
    close(store, stream)
    again = begin(store, "b")
    assert again.number > stream.number
    assert newest(store).number == again.number
    assert text_of(store, stream) == "a", "a closed stream can still be read"


def test_a_stream_needs_a_conversation(store):
    with pytest.raises(ConversationNotFound):
        write(store, lambda writing: streams.begin(writing, "x", "text/plain"), conversation="d")


def test_a_conversation_has_few_streams(store, monkeypatch):
    monkeypatch.setattr(streams, "STREAMS_MAX", 2)
    for name in "ab":
        begin(store, name=name)
    with pytest.raises(InvalidArgument, match="has 2 streams, which is the maximum"):
        begin(store, name="c")


def test_many_replies_leave_few_streams(store, monkeypatch):
    monkeypatch.setattr(streams, "REPLIES_MAX", 2)
    other = begin(store, "other", name="other")
    begun = []
    for text in "abcd":
        begun.append(begin(store, text))
        close(store, begun[-1])
    begin(store)
    left = store.query("c", lambda reading: [stream.number for stream in reading.streams()])
    assert left[1:] == [begun[3].number, begun[2].number, other.number]


def test_replies_of_a_minute_keep_their_streams(store):
    begun = []
    for number in range(streams.STREAMS_MAX + 1):
        begun.append(begin(store, f"{number}"))
        close(store, begun[-1])
    assert text_of(store, begun[0]) == "0"


def test_old_streams_are_deleted_by_who_writes_next_and_by_a_vacuum(store, monkeypatch):
    closed = begin(store, "closed")
    close(store, closed)
    other = begin(store, "other", name="other")
    monkeypatch.setattr(streams, "KEPT_S", -1)
    left = begin(store, "left")
    with pytest.raises(StreamNotFound, match="has been deleted, so read the events"):
        text_of(store, closed)
    monkeypatch.setattr(streams, "ABANDONED_S", -1)
    Maintenance(store).vacuum()
    with pytest.raises(StreamNotFound):
        text_of(store, left)
    assert text_of(store, other) == "other"
    assert problems(store) == []


def test_an_erasure_takes_the_streams(store):
    stream = begin(store, "secret")
    erase(store, "c", reason="asked for")
    with pytest.raises(ConversationErased):
        text_of(store, stream)
    with pytest.raises(ConversationErased):
        append(store, stream, "more")
    query = store.database.recorder.query
    key = query(lambda reader: reader.conversation("c")).key
    assert query(lambda reader: reader.streams(key)) == []
    assert query(lambda reader: reader.chunks(key, stream.number, 0, 9)) == []


def test_a_redaction_takes_the_stream_of_its_reply_and_no_other(store):
    said_before = begin(store, "secret")
    recorded = close(store, said_before)
    live = begin(store, "I ")
    redact(store, "c", 0, reason="asked for", by="somebody")
    assert text_of(store, said_before) == "secret"
    redact(store, "c", recorded.id, reason="asked for", by="somebody")
    with pytest.raises(StreamNotFound):
        text_of(store, said_before)
    append(store, live, "go on")
    assert text_of(store, live) == "I go on"


def test_a_copy_has_the_streams(store, open_recorder, settings):
    stream = begin(store, "I ", "am")
    with Store(open_recorder(), settings) as target:
        assert [moved.problem for moved in copy_store(store, target)] == [None]
        assert text_of(target, stream) == "I am"
        stream = append(store, stream, " here")
        close(store, stream)
        assert [moved.problem for moved in copy_store(store, target)] == [None]
        assert text_of(target, stream) == "I am here"
        assert [*newest(target).event_ids] == [2]
        assert problems(target) == []


def test_a_key_seals_the_streams(recorder):
    plain = Store(recorder)
    plain.append("c", said("hi"), expected_version=0)
    stream = begin(plain, "a secret kite")

    def stored():
        key = recorder.query(lambda reader: reader.conversation("c")).key
        return recorder.query(lambda reader: reader.chunks(key, stream.number, 0, 9))

    assert b"secret" in stored()[0].body
    sealed = Store(recorder, ENCRYPTS)
    # The first write with a key encrypts the whole conversation.
    stream = append(sealed, stream, ", sealed")
    assert not any(b"kite" in chunk.body for chunk in stored())
    assert text_of(sealed, stream) == "a secret kite, sealed"
    assert problems(sealed) == []
    assert [outcome.problem for outcome in rekey(sealed, decrypt=True)] == [None]
    assert text_of(Store(recorder, WriteSettings()), stream) == "a secret kite, sealed"
    assert problems(plain) == []


def test_a_changed_chunk_is_found(store):
    stream = begin(store, "I ", "am")

    def change(transaction):
        key = transaction.conversation("c").key
        first, second = transaction.chunks(key, stream.number, 0, 9)
        transaction.replace_chunk(key, stream.number, first._replace(body=second.body))

    store.database.recorder.transact(change)
    with pytest.raises(StoreDamaged, match="stream 'reply' is damaged at unit 0"):
        text_of(store, stream)
    assert problems(store) == ["stream 'reply' is damaged at unit 0"]


@pytest.mark.parametrize(
    "fields, problem",
    [
        ({"end": 9}, "stream 'reply' ends at unit 4, not at unit 9"),
        ({"end": 3}, "stream 'reply' ends at unit 4, not at unit 3"),
        (
            {"event": 2, "events": 2},
            "stream 'reply' became event 3, but the conversation has 3 events: the newest events"
            " may be cut off",
        ),
    ],
)
def test_a_stream_that_contradicts_the_log_is_found(store, fields, problem):
    stream = begin(store, "I ", "am")
    close(store, stream)
    assert problems(store) == []

    def change(transaction):
        key = transaction.conversation("c").key
        [closed] = transaction.streams(key)
        transaction.put_stream(key, closed._replace(**fields))

    store.database.recorder.transact(change)
    assert problems(store) == [problem]


def test_closed_streams_that_are_no_replies_count(store, monkeypatch):
    monkeypatch.setattr(streams, "STREAMS_MAX", 2)
    for name in "ab":
        number = begin(store, name=name).number
        write(store, lambda writing, number=number: streams.close(writing, number))
    with pytest.raises(InvalidArgument, match="has 2 streams, which is the maximum"):
        begin(store, name="c")


def test_an_open_reply_counts(store, monkeypatch):
    monkeypatch.setattr(streams, "STREAMS_MAX", 2)
    begin(store, name="a")
    begin(store)
    with pytest.raises(InvalidArgument, match="has 2 streams, which is the maximum"):
        begin(store, name="c")


def test_a_closed_reply_is_kept_for_its_whole_time():
    closed = streams.Stream(1, streams.REPLY, "text/plain", 0, closed_at=7)
    kept_us = streams.KEPT_S * 1_000_000
    assert [streams._is_old(closed, 7 + kept_us + late) for late in (0, 1)] == [False, True]
    left = closed._replace(closed_at=None)
    abandoned_us = streams.ABANDONED_S * 1_000_000
    assert [streams._is_old(left, abandoned_us + late) for late in (0, 1)] == [False, True]


def microseconds(moment):
    return int(moment.timestamp()) * 1_000_000


def test_a_later_stream_has_a_higher_number(recorder, settings, monkeypatch):
    """Also if its clock stands still or goes back. A number is the microsecond, and ten random bits."""
    moments = [datetime(2026, 1, 2, tzinfo=UTC)]
    store = Store(recorder, settings, clock=lambda: moments[-1])
    store.append("c", said("hi"), expected_version=0)
    monkeypatch.setattr(streams, "os", SimpleNamespace(urandom=lambda size: b"\xff" * size))
    began_at = microseconds(moments[0])
    first = streams.Stream((began_at << 10) + 0b11_1111_1111, "a", "text/plain", began_at)
    assert begin(store, name="a") == first
    moments.append(moments[0] - timedelta(seconds=1))
    assert begin(store, name="b") == first._replace(
        number=first.number + 1, name="b", began_at=began_at - 1_000_000
    )
    monkeypatch.setattr(streams, "os", SimpleNamespace(urandom=lambda size: b"\x02" * size))
    moments.append(moments[0] + timedelta(microseconds=1))
    number = (began_at + 1 << 10) + (0x0202 >> 6)
    third = first._replace(number=number, name="c", began_at=began_at + 1)
    assert begin(store, name="c") == third
    stored = store.query("c", lambda reading: [stream.number for stream in reading.streams()])
    assert stored == [third.number, first.number + 1, first.number]


def test_a_reply_that_is_written_notes_the_time_every_ten_seconds(recorder, settings):
    moments = [datetime(2026, 1, 2, tzinfo=UTC)]
    store = Store(recorder, settings, clock=lambda: moments[-1])
    store.append("c", said("hi"), expected_version=0)
    reply = begin(store)
    other = begin(store, name="other")
    noted = []
    for passed_us in (9_999_999, 10_000_000, 10_000_001, 19_999_999, 20_000_000, 20_000_001):
        moments.append(moments[0] + timedelta(microseconds=passed_us))
        reply = append(store, reply, "x")
        other = append(store, other, "x")
        assert reply == newest(store)
        noted.append(reply.state.decode())
    began_at = microseconds(moments[0])
    first, second = (f'{{"wrote_at": {began_at + late}}}' for late in (10_000_000, 20_000_000))
    assert noted == ["{}", first, first, first, second, second]
    assert other.state == newest(store, "other").state == b"{}"


@pytest.mark.parametrize(
    "state, noted_at",
    [
        (b"{}", 0),
        (b"[]", 0),
        (b"7", 0),
        (b"{", 0),
        (b'{"wrote_at": null}', 0),
        (b'{"wrote_at": 1.5}', 0),
        (b'{"wrote_at": true}', 0),
        (b'{"wrote_at": 12, "dies": 3}', 12),
    ],
)
def test_only_a_whole_number_is_the_time_of_a_note(state, noted_at):
    assert streams._wrote_at(state) == noted_at


@pytest.mark.parametrize("state", [b"{", b"[]", b"\xff"])
def test_a_reply_with_an_unreadable_state_is_named(store, state):
    reply = begin(store)
    broken = reply._replace(state=state, began_at=1)
    write(store, lambda writing: writing.put_stream(broken))
    with pytest.raises(StoreDamaged, match="'c': the state of stream 'reply' cannot be read"):
        append(store, reply, "x")


def test_old_streams():
    """A closed reply is old after a minute, an open one a week after its last note, and another
    stream when it dies.
    """
    kept_us = streams.KEPT_S * 1_000_000
    abandoned_us = streams.ABANDONED_S * 1_000_000
    reply = streams.Stream(1, streams.REPLY, "text/plain", 5)
    other = reply._replace(name="other")
    dying = other._replace(state=b'{"dies": 70}')
    noted = reply._replace(state=b'{"wrote_at": 9}')
    never = None
    old_from = [
        (reply, abandoned_us + 6),
        (noted, abandoned_us + 10),
        (noted._replace(began_at=20), abandoned_us + 21),
        (reply._replace(closed_at=7), kept_us + 8),
        (noted._replace(closed_at=7), kept_us + 8),
        (reply._replace(state=b'{"dies": 70}'), 70),
        (other, never),
        (other._replace(closed_at=7), never),
        (other._replace(closed_at=7, event=0, events=1), kept_us + 8),
        (other._replace(event=0, events=1), abandoned_us + 6),
        (dying, 70),
        (dying._replace(closed_at=7), 70),
        (other._replace(state=b'{"producers": {"dies": [0, 1]}}'), never),
        (other._replace(state=b'{"began_by": "dies"}'), never),
        (other._replace(state=b'{"dies": "x"}'), never),
        (other._replace(state=b'{"dies" 7'), never),
        (reply._replace(state=b'["dies"]'), abandoned_us + 6),
    ]
    for stream, begins in old_from:
        if begins is never:
            assert not streams._is_old(stream, 2 * abandoned_us), stream
        else:
            is_old = [streams._is_old(stream, begins + late) for late in (-1, 0, 1)]
            assert is_old == [False, True, True], stream
