"""A follower returns no event that a failover can take back. If it cannot know, it waits."""

import contextlib
from concurrent.futures import ThreadPoolExecutor

import pytest

from foldlog.eventstore import StoreUnavailable, open_store
from foldlog.eventstore.errors import StoreRefused
from tests.said import say
from tests.waiting import in_thread, until

from .servers import Server, new_primary
from .test_faults import commits_wait, waiting_for_nobody

BRIEF = "4"
"""A patience in seconds that a test can wait for. On a loaded machine, one answer takes less than
half of it.
"""


def followed(store, after=0):
    return [recorded.event.content for recorded in store.follow(after)]


@pytest.fixture
def primary(folder):
    """A separate server, whose commits wait for a standby as soon as a standby is named."""
    server = new_primary(folder / "primary", {"wal_level": "replica"})
    yield server
    with contextlib.suppress(FileNotFoundError):  # The test ended the server.
        server.kill()


@pytest.fixture
def standby(primary, folder):
    """A standby with an event. Once it is promoted, its commits wait for another one."""
    with open_store(primary.url()) as store:
        say(store, "c1", "0")
    server = Server(folder / "standby")
    server.follow(primary, "s1")
    server.configure({"synchronous_standby_names": "away"})
    server.start()
    yield server
    server.stop("immediate")


def wait_for(server, standbys):
    """Let commits wait for these standbys."""
    server.sql(f"ALTER SYSTEM SET synchronous_standby_names = '{standbys}'")
    server.reload()
    until(lambda: server.sql("SHOW synchronous_standby_names") == standbys)
    if standbys:
        until(lambda: commits_wait(server))


def waiting(server):
    """Return how many sessions wait for a standby."""
    return int(server.sql("SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'"))


@contextlib.contextmanager
def unconfirmed(primary, conversation):
    """An append whose commit is on the primary's disk and waits for a standby that is away."""

    def append():
        with (
            contextlib.suppress(StoreUnavailable),
            open_store(primary.url(patience_s=BRIEF)) as store,
        ):
            say(store, conversation, "never confirmed")

    with in_thread(append):
        until(lambda: waiting(primary))
        yield


@pytest.mark.long  # a server of its own, and standbys
def test_unconfirmed_events_are_not_followed_after_a_crash(primary):
    with open_store(primary.url()) as store:
        say(store, "c1", "confirmed")
    wait_for(primary, "away")
    with unconfirmed(primary, "c2"):
        primary.kill()
    primary.start()
    # The server itself shows the unconfirmed event.
    assert primary.sql("SELECT count(*) FROM foldlog.events") == "2"
    options = [{"mode": "ro"}, {}, {"mode": "ro", "pooler": "transaction"}]
    with contextlib.ExitStack() as opened:
        followers = [
            opened.enter_context(open_store(primary.url(patience_s=BRIEF, **chosen)))
            for chosen in options
        ]
        with ThreadPoolExecutor() as threads:
            list(threads.map(assert_refused, followers))
        wait_for(primary, "")
        for follower in followers:
            assert followed(follower) == ["confirmed", "never confirmed"]


def assert_refused(follower):
    with pytest.raises(
        StoreUnavailable, match="a follower first waits until a standby has confirmed"
    ):
        list(follower.follow())


@pytest.mark.long  # a server of its own, and standbys
def test_a_follower_continues_without_the_standby(primary):
    """A connection that has once waited for the standby needs it no more for these events. Only a
    new connection waits again.
    """
    with (
        open_store(primary.url()) as store,
        open_store(primary.url(mode="ro", patience_s=BRIEF)) as follower,
    ):
        say(store, "c1", "0")
        assert followed(follower) == ["0"]
        wait_for(primary, "away")
        with unconfirmed(primary, "c2"):
            assert followed(follower) == ["0"]
        wait_for(primary, "")


@pytest.mark.long  # a server of its own, and standbys
def test_a_server_that_stops_waiting_confirms_nothing(primary):
    open_store(primary.url()).close()
    with (
        waiting_for_nobody(primary),
        open_store(primary.url(mode="ro", patience_s=BRIEF)) as follower,
        pytest.raises(StoreUnavailable, match="the server was told not to wait for its standby"),
    ):
        list(follower.follow())


@pytest.mark.long  # a server of its own, and standbys
def test_a_follower_leaves_no_session_behind(primary):
    """A session that waits for a standby does not notice that its client has gone."""
    open_store(primary.url()).close()
    wait_for(primary, "away")
    with open_store(primary.url(mode="ro", patience_s=BRIEF)) as follower:
        assert_refused(follower)
    until(lambda: not waiting(primary))


@pytest.mark.long  # a server of its own, and standbys
def test_a_promoted_standby_confirms_first(standby):
    with open_store(standby.url(mode="ro", patience_s=BRIEF)) as follower:
        # The connection of this follower outlives the promotion.
        assert followed(follower) == ["0"]
        standby.promote()
        assert_refused(follower)
        wait_for(standby, "")
        assert followed(follower) == ["0"]


@pytest.mark.long  # a server of its own, and standbys
def test_a_promoted_server_opens_without_a_standby(primary, standby):
    """The epoch that begins then waits for no standby; the first append does."""
    primary.kill()
    standby.promote()
    with open_store(standby.url(patience_s=BRIEF)) as store:
        assert store.version("c1") == 1
        assert standby.sql("SELECT epoch > 0 FROM foldlog.epoch") == "t"
        with pytest.raises(StoreUnavailable, match="not known whether the events were written"):
            say(store, "c1", "1", expected_version=1)
        wait_for(standby, "")
        assert followed(store) == ["0", "1"]


def test_positions_are_asked_for_before_anything_else(postgres_url):
    """A read transaction that has begun cannot wait for a standby any more."""
    with open_store(postgres_url()) as store:
        recorder = store._recorder
        with recorder.read() as reader:
            assert reader.conversation("c1") is None
            with pytest.raises(StoreRefused, match="last_position has to be the first"):
                recorder.position(reader.value("last_position"))
        with recorder.read() as reader:
            assert (
                recorder.position(reader.value("last_position")),
                reader.conversation("c1"),
                recorder.position(reader.value("last_position")),
            ) == (0, None, 0)


@pytest.mark.long  # a server of its own, and standbys
def test_a_store_opens_once_its_server_returns(primary):
    with open_store(primary.url()) as store:
        say(store, "c1", "0")
    primary.stop()
    opened = []

    def open_it():
        with open_store(primary.url(patience_s="60")) as store:
            opened.append(say(store, "c1", "1")[0].id)

    with in_thread(open_it) as opening:
        opening.join(1.0)
        assert opening.is_alive()
        primary.start()
    assert opened == [1]
