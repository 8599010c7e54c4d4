"""``Seen``: an append is refused if what its caller read was redacted or replaced."""

import pytest
from msgspec import structs

from foldlog.eventstore import NOTHING_SEEN, ConversationErased, Seen, Store, VersionConflict
from foldlog.eventstore.maintenance.redact import redact
from foldlog.eventstore.store import bind
from foldlog.projections import Views
from tests.privacy import erased, redacted
from tests.said import said, say, texts


@pytest.fixture
def store(settings, open_recorder):
    store = Store(open_recorder(), settings)
    store.register(Views(store))
    return store


def test_an_append_to_what_was_seen(store):
    say(store, "c", "first")
    seen = store.query("c", Seen.of)

    store.append("c", said("second"), expected_version=seen)

    assert texts(store, "c") == ["first", "second"]


def test_a_later_event_refuses_the_append(store):
    say(store, "c", "first")
    seen = store.query("c", Seen.of)
    say(store, "c", "second")

    with pytest.raises(VersionConflict) as caught:
        store.append("c", said("third"), expected_version=seen)

    assert (caught.value.expected, caught.value.actual) == (1, 2)


def test_any_version_after_the_append_of_another(store):
    say(store, "c", "first")
    seen = store.query("c", Seen.of).at_any_version()
    say(store, "c", "second")

    store.append("c", said("third"), expected_version=seen)

    assert texts(store, "c") == ["first", "second", "third"]


def test_any_version_refuses_an_append_after_a_redaction(store):
    say(store, "c", "secret")
    seen = store.query("c", Seen.of).at_any_version()
    redacted(store, "c", 0)

    with pytest.raises(VersionConflict) as caught:
        store.append("c", said("secret"), expected_version=seen)

    assert (caught.value.expected, caught.value.actual) == (2, 2)


def test_the_error_says_that_an_event_was_redacted(store):
    say(store, "c", "secret")
    seen = store.query("c", Seen.of).at_any_version()
    redacted(store, "c", 0)

    with pytest.raises(VersionConflict, match="is still at version 2, but an event was redacted"):
        store.append("c", said("secret"), expected_version=seen)


def test_any_version_accepts_a_conversation_that_another_writer_began(store):
    say(store, "c", "first")

    store.append("c", said("second"), expected_version=NOTHING_SEEN.at_any_version())

    assert texts(store, "c") == ["first", "second"]


def test_what_a_view_shows(store):
    say(store, "c", "secret", "harmless")
    store.fork("c", 1, "fork")
    say(store, "fork", "of the fork")
    views = Views(store)
    view = views.current("fork")
    assert view.seen == store.query("fork", Seen.of)
    grown = view.then([])
    redacted(store, "c", 0)

    for seen in (view.seen, grown.seen):
        with pytest.raises(VersionConflict):
            store.append("fork", said("secret"), expected_version=seen)
    store.append("fork", said("third"), expected_version=views.current("fork").seen)

    assert texts(store, "fork")[1:] == ["of the fork", "third"]


@pytest.mark.parametrize("key", [None, "a key"])
def test_a_redaction_in_the_past_of_a_fork_refuses_the_append(store, key):
    say(store, "c", "secret", "harmless")
    store.fork("c", 1, "fork")
    say(store, "fork", "of the fork")
    seen = store.query("fork", Seen.of)
    redact(store, "c", 0, reason="asked for", by="me")
    assert store.version("fork") == seen.version  # so a version alone would not refuse the append

    with pytest.raises(VersionConflict):
        store.append("fork", said("secret"), expected_version=seen, idempotency_key=key)

    assert texts(store, "fork")[1:] == ["of the fork"]


def test_a_repeated_append_returns_its_events_after_a_redaction(store):
    say(store, "c", "secret")
    store.fork("c", 1, "fork")
    seen = store.query("fork", Seen.of)
    first = store.append("fork", said("kept"), expected_version=seen, idempotency_key="key")
    redacted(store, "c", 0)

    again = store.append("fork", said("kept"), expected_version=seen, idempotency_key="key")

    assert again == first


def test_the_first_append_has_seen_nothing(store):
    store.append("c", said("first"), expected_version=NOTHING_SEEN)

    assert texts(store, "c") == ["first"]


def test_the_first_append_after_another_writer_began_the_conversation(store):
    say(store, "c", "first")

    with pytest.raises(VersionConflict):
        store.append("c", said("also first"), expected_version=NOTHING_SEEN)

    assert texts(store, "c") == ["first"]


def test_the_first_append_after_the_conversation_was_begun_and_erased(store):
    say(store, "c", "first")
    erased(store, "c")

    with pytest.raises(ConversationErased):
        store.append("c", said("first"), expected_version=NOTHING_SEEN)


def test_the_first_append_again_after_an_erasure(store):
    """An object that replaces erased conversations must not repeat what it read before."""
    say(store, "c", "secret")
    seen = store.query("c", Seen.of)
    erased(store, "c")
    _, own = bind(store, "c", replaces_erased=True)

    with pytest.raises(VersionConflict):
        own.append("c", said("secret"), expected_version=structs.replace(seen, version=0))


def test_a_redaction_by_another_connection_refuses_the_append(settings, open_recorder):
    """The appending connection keeps the state of its last append."""
    store = Store(open_recorder(), settings)
    say(store, "c", "secret", "harmless")
    store.fork("c", 1, "fork")
    say(store, "fork", "of the fork")
    seen = store.query("fork", Seen.of)
    other = Store(store.database.recorder, settings)
    redacted(other, "c", 0)

    with pytest.raises(VersionConflict):
        store.append("fork", said("secret"), expected_version=seen)
