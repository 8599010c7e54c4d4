"""A chunk of a reply is written without asking the server first. What it assumes of its stream and
its lease may be wrong, because others may have changed them. Then the chunk costs further round
trips, and is otherwise written or refused as if it had asked.
"""

import pytest

import foldlog
from foldlog import LeaseTaken
from foldlog.eventstore import ConversationErased, StreamConflict, StreamNotFound
from foldlog.eventstore.log import streams
from foldlog.eventstore.recorders.postgres.wire import Wire
from tests.conformance.conftest import noted, unrenewed_lease
from tests.privacy import erased
from tests.said import said, texts

CHUNKS = ["A toy", " that", " flies."]


@pytest.fixture
def ours(url):
    """The history whose reply is streamed."""
    with foldlog.open(url) as histories:
        history = histories["c1"]
        history.append(said("what is a kite?"))
        yield history


@pytest.fixture
def theirs(url, ours):
    """The same history in another store on the same database."""
    with foldlog.open(url) as histories:
        yield histories["c1"]


@pytest.fixture
def reply(ours):
    """A reply with three chunks. Its writer assumes the stream as the last chunk left it."""
    reply = ours.stream_reply()
    for chunk in CHUNKS:
        reply.feed(chunk)
    return reply


@pytest.fixture
def trips(monkeypatch):
    """The round trips to the server."""
    return noted(monkeypatch, Wire, "ask")


def test_a_chunk_is_one_round_trip(ours, trips):
    with ours.lease(), ours.stream_reply() as reply:
        for chunk in CHUNKS:
            reply.feed(chunk)
        trips.clear()
        reply.feed("!")
        reply.feed("!")
        assert len(trips) == 2
        ours.append(said("and a balloon?"))
        trips.clear()
        reply.feed("!")
        ours.append(said("and a plane?"))
        assert len(trips) == 2
    assert texts(ours._store, "c1")[-1] == "A toy that flies.!!!"


def test_a_chunk_of_a_reply_that_others_continued_is_refused(reply, theirs):
    theirs.unfinished_reply().continue_with().feed(" Also a bird.")
    with pytest.raises(StreamConflict, match="another writer"):
        reply.feed("!")


def test_a_chunk_in_a_fork_that_others_continued_is_refused(ours, theirs):
    """The state of a fork is always read."""
    fork = ours.fork(1)
    reply = fork.stream_reply()
    reply.feed("A toy")
    reply.feed(" that")
    other = theirs._histories[fork.id].unfinished_reply().continue_with()
    other.feed(" flies")
    other.feed(".")
    with pytest.raises(StreamConflict, match="another writer"):
        reply.feed("!")
    other.feed("..")
    assert fork.unfinished_reply().text == "A toy that flies..."


def test_a_chunk_of_a_reply_that_others_ended_is_refused(reply, theirs):
    theirs.unfinished_reply().append_cut()
    with pytest.raises(StreamConflict, match="is closed"):
        reply.feed("!")


def test_a_chunk_goes_into_no_later_reply_of_others(reply, theirs):
    theirs.unfinished_reply().drop()
    following = theirs.stream_reply()
    following.feed("another")
    with pytest.raises(StreamConflict, match="is closed"):
        reply.feed("!")
    following.feed(" one")
    assert theirs.unfinished_reply().text == "another one"


def test_a_chunk_of_a_reply_that_others_deleted_is_refused(reply, theirs):
    def delete(transaction):
        database = theirs._store.database
        writing = streams.open_stream_writing(database, transaction, "c1", None)
        writing.drop_stream(reply.begin())

    theirs._store.database.recorder.transact(delete)
    with pytest.raises(StreamNotFound):
        reply.feed("!")


def test_a_chunk_in_a_conversation_that_others_erased_is_refused(reply, theirs):
    erased(theirs._store, "c1")
    with pytest.raises(ConversationErased):
        reply.feed("!")


def test_a_chunk_under_a_lease_that_others_took_is_refused(ours, theirs):
    with unrenewed_lease(ours, "ours"):
        reply = ours.stream_reply()
        reply.feed("A toy")
        reply.feed(" that")
        with theirs.lease(wait_s=60):
            with pytest.raises(LeaseTaken, match="'ours' has ended"):
                reply.feed(" flies.")
            assert theirs.unfinished_reply().text == "A toy that"


def test_a_renewed_lease_costs_one_further_round_trip(ours, trips):
    with ours.lease(), ours.stream_reply() as reply:
        for chunk in CHUNKS:
            reply.feed(chunk)
        assert ours._lease_block.renew()
        trips.clear()
        reply.feed("!")
        reply.feed("!")
        assert len(trips) == 3
