"""Chunks that another writer adds to the same file are no reason for a writer to read its store
again. Commits of events are.
"""

import random
from contextlib import closing
from functools import partial

import pytest

from foldlog.eventstore import (
    ANY_VERSION,
    ConversationErased,
    EventStoreError,
    StreamConflict,
    open_store,
)
from foldlog.eventstore.log import streams
from foldlog.eventstore.maintenance.erase import erase
from foldlog.eventstore.maintenance.redact import redact
from foldlog.eventstore.recorders.sqlite.stream_commits import StreamCommits
from tests.said import said, say
from tests.stored_rows import execute

WALKS = 12
STEPS = 60


@pytest.fixture
def ours(path):
    with open_store(path) as store:
        say(store, "a", "hi")
        yield store


@pytest.fixture
def other(path, ours):
    with open_store(path) as store:
        say(store, "b", "hi")
        yield store


def write(store, conversation, work):
    def in_transaction(transaction):
        writing = streams.open_stream_writing(store.database, transaction, conversation, None)
        result = work(writing)
        writing.end()
        return result

    return store.database.recorder.transact(in_transaction, durable=False)


def begin(store, conversation):
    return write(store, conversation, lambda writing: streams.begin(writing, "reply", "text/plain"))


def feed(store, conversation, stream):
    work = partial(streams.append, number=stream.number, begins=stream.end, units=1, body=b"x")
    return write(store, conversation, work)


def forgetting(store, monkeypatch):
    """Return a list that gets an element whenever a writer forgets what it remembers."""
    times = []
    transaction = store.database.recorder._writing._transaction
    forget = transaction.forget

    def counted():
        times.append(None)
        forget()

    monkeypatch.setattr(transaction, "forget", counted)
    return times


def test_chunks_of_another_writer_are_no_reason_to_read_again(ours, other, monkeypatch):
    stream = feed(other, "b", begin(other, "b"))
    say(ours, "a", "hi")
    times = forgetting(ours, monkeypatch)
    for chunks in (1, 3):
        for _ in range(chunks):
            stream = feed(other, "b", stream)
        say(ours, "a", "hi")
        say(ours, "a", "hi")
    assert times == []
    assert ours.version("a") == 6


def test_chunks_of_two_writers_are_no_reason_to_read_again(ours, other, path, monkeypatch):
    with open_store(path) as third:
        say(third, "c", "hi")
        own = begin(ours, "a")
        theirs = begin(other, "b")
        stream = begin(third, "c")
        say(ours, "a", "hi")
        theirs = feed(other, "b", theirs)
        stream = feed(third, "c", stream)
        own = feed(ours, "a", own)
        times = forgetting(ours, monkeypatch)
        theirs = feed(other, "b", theirs)
        stream = feed(third, "c", stream)
        feed(ours, "a", own)
        feed(other, "b", theirs)
        feed(third, "c", stream)
        say(ours, "a", "hi")
    assert times == []


def test_a_chunk_hides_no_append(ours, other):
    stream = begin(other, "b")
    say(ours, "a", "hi")
    say(other, "a", "hi")
    stream = feed(other, "b", stream)
    assert say(ours, "a", "hi")[0].id == 3
    stream = feed(other, "b", stream)
    say(other, "b", "hi")
    feed(other, "b", stream)
    assert say(ours, "a", "hi")[0].position == 7


def test_a_chunk_hides_no_erasure(ours, other):
    stream = begin(other, "b")
    say(ours, "a", "hi")
    erase(other, "a", reason="asked")
    feed(other, "b", stream)
    with pytest.raises(ConversationErased):
        say(ours, "a", "hi")


def test_a_chunk_hides_no_commit_of_another_program(ours, other, path):
    stream = feed(other, "b", begin(other, "b"))
    say(ours, "a", "hi")
    stream = feed(other, "b", stream)
    execute(path, "UPDATE conversations SET erased_at = 5, erased_events = 2, erased_head = x'00'")
    with pytest.raises(ConversationErased):
        say(ours, "a", "hi")


def test_a_chunk_in_a_transaction_with_events_is_a_reason_to_read_again(ours, other):
    stream = begin(other, "b")

    def also(writing):
        streams.append(writing, stream.number, 0, 1, b"x")

    say(ours, "a", "hi")
    other.append("b", said("hi"), expected_version=1, also=also)
    assert say(ours, "a", "hi")[0].position == 5


def test_a_stream_of_two_writers_is_read_again(ours, other):
    stream = feed(ours, "a", begin(ours, "a"))
    feed(other, "a", stream)
    with pytest.raises(StreamConflict, match="ends at 2"):
        feed(ours, "a", stream)


class Walk:
    """Random steps of three writers. ``outcomes`` contains what each step returned or raised."""

    def __init__(self, path, seed):
        self.random = random.Random(seed)
        self.path = path
        self.streams = {}
        self.outcomes = []

    def run(self):
        """Do all steps, and return their outcomes."""
        with (
            closing(open_store(self.path)) as first,
            closing(open_store(self.path)) as second,
            closing(open_store(self.path)) as third,
        ):
            for name in "abc":
                say(first, name, "hi", "hi")
            for _ in range(STEPS):
                store = self.random.choice([first, second, third])
                self.step(store, self.random.choice("abc"))
            return self.outcomes

    def step(self, store, name):
        kinds = ["append", "chunk", "redact", "erase", "begin"]
        kind = self.random.choices(kinds, weights=[30, 60, 2, 1, 10])[0]
        try:
            outcome = getattr(self, kind)(store, name)
        except EventStoreError as error:
            outcome = type(error).__name__
        self.outcomes.append((kind, name, outcome))

    def append(self, store, name):
        recorded = store.append(name, said("hi"), expected_version=ANY_VERSION)[0]
        return recorded.id, recorded.position

    def begin(self, store, name):
        self.streams[name] = begin(store, name)

    def chunk(self, store, name):
        if name in self.streams:
            self.streams[name] = feed(store, name, self.streams[name])
            return self.streams[name].end
        return None

    def redact(self, store, name):
        redact(store, name, 1, reason="asked", by="tester")

    def erase(self, store, name):
        erase(store, name, reason="asked")


@pytest.mark.parametrize("seed", range(WALKS))
def test_what_is_remembered_changes_no_outcome(tmp_path, monkeypatch, seed):
    remembering = Walk(tmp_path / "remembering.db", seed).run()
    monkeypatch.setattr(StreamCommits, "first_header", lambda self, header: header)
    assert remembering == Walk(tmp_path / "reading.db", seed).run()
