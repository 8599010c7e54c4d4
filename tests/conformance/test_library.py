"""The tests of recorders that the eventsourcing library ships, on the recorders of foldlog. Then
the library's ``Application`` and ``ProjectionRunner`` on a store.
"""

import itertools
import unittest
from dataclasses import replace
from datetime import UTC, datetime
from math import inf
from typing import ClassVar
from uuid import UUID, uuid4

import pytest
from eventsourcing import domain
from eventsourcing.application import Application
from eventsourcing.persistence import (
    InfrastructureFactoryError,
    IntegrityError,
    MapperDeserialisationError,
    PersistenceError,
    StoredEvent,
)
from eventsourcing.projection import Projection, ProjectionRunner
from eventsourcing.tests import persistence as shipped

from foldlog.eventstore import (
    Action,
    ConversationErased,
    InvalidEvent,
    Observation,
    Store,
    StoreDamaged,
    StoreRefused,
    StoreUnavailable,
    open_store,
)
from foldlog.eventstore.integrations.eventsourcing import (
    ConversationBatches,
    ConversationEvent,
    ConversationMapper,
    Factory,
    TrackingView,
    errors_of_the_library,
)
from foldlog.eventstore.log.following import read_placed_rows
from foldlog.eventstore.recorders.types import Record
from tests.conformance.conftest import RECORDERS
from tests.privacy import erased
from tests.said import said, say
from tests.sound import assert_sound


class _OnRecorder:
    """Gives the shipped cases a recorder on a new store. Ids are text, as ORIGINATOR_ID_TYPE=text
    says.
    """

    __test__ = False  # a test below runs them, once for each recorder
    url: ClassVar[str]
    recorder: ClassVar[str]
    numbers = itertools.count()
    insert_num = 200

    def setUp(self):
        self.opened = []

    def tearDown(self):
        for factory in self.opened:
            factory.close()

    def create_recorder(self):
        url = self.url.format(number=next(self.numbers))
        self.opened.append(Factory({"FOLDLOG_URL": url}))
        return getattr(self.opened[-1], self.recorder)()

    def new_originator_id(self):
        return str(uuid4())


class _Application(_OnRecorder, shipped.ApplicationRecorderTestCase):
    def test_insert_subscribe(self):
        self.optional_test_insert_subscribe()


CASES = {
    shipped.AggregateRecorderTestCase: "aggregate_recorder",
    _Application: "application_recorder",
    shipped.TrackingRecorderTestCase: "tracking_recorder",
    shipped.ProcessRecorderTestCase: "process_recorder",
    shipped.NonInterleavingNotificationIDsBaseCase: "application_recorder",
}


def _names(case):
    return unittest.defaultTestLoader.getTestCaseNames(case)


@pytest.fixture
def url(request, tmp_path):
    if request.param == "postgresql":
        schema = f"{request.getfixturevalue('postgres_stores').new()}_{{number}}"
        return str(request.getfixturevalue("postgres_front").url(schema=schema))
    return "memory:" if request.param == "memory" else f"sqlite:///{tmp_path}/{{number}}.db"


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("url", RECORDERS, indirect=True)
@pytest.mark.parametrize("case, name", [(case, name) for case in CASES for name in _names(case)])
def test_a_case_of_the_library_passes(case, name, url):
    contiguous = not url.startswith("postgresql")
    if name == "test_insert_select" and not contiguous:
        pytest.skip("it expects the ids 1, 2, 3; on PostgreSQL only their order is promised")
    settings = {"url": url, "recorder": CASES[case]}
    settings["EXPECT_CONTIGUOUS_NOTIFICATION_IDS"] = contiguous
    bases = (case,) if issubclass(case, _OnRecorder) else (_OnRecorder, case)
    case_here = type(case.__name__, bases, settings)
    result = unittest.TestResult()
    case_here(name).run(result)
    assert result.testsRun == 1
    assert not result.skipped
    assert result.wasSuccessful(), "\n".join(text for _, text in result.failures + result.errors)


# -- Application and ProjectionRunner
# ---------------------------------------------------------------------------------


class Conversations(Application[str]):
    """A library application whose events are ours."""

    def say(self, conversation, version, text):
        message = said(text)
        self.events.put([ConversationEvent(conversation, version, message)])


class Heard(TrackingView):
    """Keeps the number of characters heard, with how far it has come, in one transaction."""

    def hear(self, characters, tracking):
        def work(transaction):
            self.track(transaction, tracking)
            record = self.record_at(transaction, "heard", 1)
            total = int(record.body) if record else 0
            self.put_records(transaction, "heard", [Record(1, 1, b"%d" % (total + characters))])

        self.recorder.transact(work)

    def total(self):
        record = self.recorder.query(lambda reader: self.record_at(reader, "heard", 1))
        return int(record.body) if record else 0


class HearEverything(Projection[Heard]):
    name = "hear"

    def process_event(self, domain_event, tracking):
        self.view.hear(len(domain_event.event.content), tracking)


@pytest.fixture(params=["sqlite", "postgresql"])
def env(request, tmp_path):
    """The library's environment, on a store that several may open."""
    url = f"sqlite:///{tmp_path}/library.db"
    if request.param == "postgresql":
        url = request.getfixturevalue("postgres_url")()
    return {
        "PERSISTENCE_MODULE": "foldlog.eventstore.integrations.eventsourcing",
        "FOLDLOG_URL": url,
    }


def test_an_application_writes_what_a_store_reads(env):
    begun = datetime.now(UTC)
    with Conversations(env=env) as application:
        application.say("c1", 0, "hi")
        application.say("c1", 1, "there")
        recorded = [*application.events.get("c1")]
        assert [event.event.content for event in recorded] == ["hi", "there"]
        assert all(event.event.timestamp == event.recorded_at for event in recorded)
        assert all(begun <= event.recorded_at <= datetime.now(UTC) for event in recorded)
        with pytest.raises(IntegrityError):
            application.say("c1", 1, "again")
    with open_store(env["FOLDLOG_URL"]) as store:
        assert [(event.id, event.content) for event in store.events("c1")] == [
            (0, "hi"),
            (1, "there"),
        ]
        assert [event.shown for event in store.events("c1")] == [True, True]


def test_a_closed_application_may_be_closed_again_inside_a_write(env):
    """The library also closes an application when it is deleted, which may be at any moment."""
    with Conversations(env=env) as application:
        application.say("c1", 0, "hi")
    with open_store(env["FOLDLOG_URL"]) as store:
        store.append("c1", said("a"), expected_version=1, guard=lambda _: application.close())
        assert store.version("c1") == 2


def test_a_projection_runner_processes_each_event_once(env):
    if "stores=" in env["FOLDLOG_URL"]:
        pytest.skip("several stores have no one order of notifications")

    hearing = {
        "application_class": Conversations,
        "projection_class": HearEverything,
        "view_class": Heard,
        "env": env,
    }

    def say_long(n):
        return say(store, "c1", "x" * n)[0].position

    with open_store(env["FOLDLOG_URL"]) as store:
        last = [say_long(n) for n in range(10)][-1]
        runner = ProjectionRunner(**hearing)
        with runner:
            runner.wait(last, timeout=60)
            last = say_long(10)
            runner.wait(last, timeout=60)
            assert runner.view.total() == sum(range(11))
        # The library closes the recorder of the application, and leaves that of the view open.
        runner.view.recorder.close()
    again = ProjectionRunner(**hearing)
    with again:
        again.wait(last, timeout=60)
        assert again.view.total() == sum(range(11))
    again.view.recorder.close()


class HearBatches(Projection[Heard]):
    name = "hear"

    def process_event(self, domain_event, tracking):
        self.view.hear(sum(len(entry.event.content) for entry in domain_event.events), tracking)


def test_a_runner_of_batches_processes_each_event_once(env):
    if "stores=" in env["FOLDLOG_URL"]:
        pytest.skip("several stores have no one order of notifications")
    with open_store(env["FOLDLOG_URL"]) as store:
        last = say(store, "c1", *("x" * n for n in range(10)))[-1].position
        runner = ProjectionRunner(
            application_class=ConversationBatches,
            projection_class=HearBatches,
            view_class=Heard,
            env=env,
        )
        with runner:
            runner.wait(last, timeout=60)
            assert runner.view.total() == sum(range(10))
            last = say(store, "c2", "x" * 10)[-1].position
            runner.wait(last, timeout=60)
            assert runner.view.total() == sum(range(11))
        runner.view.recorder.close()


class HearBatchesOfMessages(HearBatches):
    topics = ("message/1",)


def test_batches_have_only_the_topics_of_the_projection(env, monkeypatch):
    if "stores=" in env["FOLDLOG_URL"]:
        pytest.skip("several stores have no one order of notifications")
    monkeypatch.setattr("foldlog.eventstore.integrations.eventsourcing.BATCH_MAX", 2)
    called = Action(tool="ls", arguments={})
    events = [called, called, said("a"), called, called, called, said("bc")]
    with open_store(env["FOLDLOG_URL"]) as store:
        last = store.append("c1", events, expected_version=0)[-1].position
        runner = ProjectionRunner(
            application_class=ConversationBatches,
            projection_class=HearBatchesOfMessages,
            view_class=Heard,
            env=env,
        )
        with runner:
            runner.wait(last, timeout=60)
            assert runner.view.total() == 3  # the characters of the messages
        runner.view.recorder.close()


def test_events_of_other_topics_are_read_once(env, monkeypatch):
    if "stores=" in env["FOLDLOG_URL"]:
        pytest.skip("several stores have no one order of notifications")
    module = "foldlog.eventstore.integrations.eventsourcing"
    begins = []

    def read(database, after_position, limit):
        begins.append(after_position)
        return read_placed_rows(database, after_position, limit)

    monkeypatch.setattr(f"{module}.read_placed_rows", read)
    with ConversationBatches(env=env) as application, open_store(env["FOLDLOG_URL"]) as store:
        subscription = application.recorder.subscribe(gt=0, topics=("message/1",))
        first = store.append("c1", Action(tool="ls"), expected_version=0)[-1].position
        with subscription:
            # On a server, other transactions may hide the event for a moment.
            while begins[-1:] != [first]:
                assert not subscription._poll()
            begins.clear()
            store.append("c1", [Action(tool="ls"), said("a")], expected_version=1)
            while not (batches := subscription._poll()):
                pass
        assert [placed.row.kind for placed in batches[0].rows] == ["message"]
    assert {*begins} == {first}


@pytest.mark.parametrize(
    "options, ids",
    [
        ({}, [0, 1, 2, 3]),
        ({"gt": 0}, [1, 2, 3]),
        ({"lte": 1}, [0, 1]),
        ({"gt": 0, "lte": 2}, [1, 2]),
        ({"lte": 9}, [0, 1, 2, 3]),
        ({"limit": 2}, [0, 1]),
        ({"gt": 0, "limit": 1}, [1]),
        ({"desc": True, "limit": 2}, [3, 2]),
        ({"desc": True, "lte": 1, "limit": 1}, [1]),
    ],
)
def test_a_part_of_a_conversation_is_selected(options, ids):
    factory = Factory({"FOLDLOG_URL": "memory:"})
    recorder = factory.application_recorder()
    say(Store(factory.recorder.database.recorder), "c", *"abcd")
    assert [row.originator_version for row in recorder.select_events("c", **options)] == ids
    assert recorder.select_events("nobody", **options) == []


def test_what_no_store_can_hold_is_refused_by_the_library():
    mapper = ConversationMapper(transcoder=None)
    endless = ConversationEvent("c1", 0, Observation(tool="ls", content="a", extras={"n": inf}))
    with pytest.raises(InvalidEvent, match="inf"):
        mapper.to_stored_event(endless)
    with pytest.raises(MapperDeserialisationError, match="event 3 of 'c1' cannot be read"):
        mapper.to_domain_event(StoredEvent("c1", 3, "message/1", b"{"))
    factory = Factory({"FOLDLOG_URL": "memory:"})
    with pytest.raises(InfrastructureFactoryError, match="does not store snapshots of"):
        factory.aggregate_recorder("snapshots")


def test_the_environment_names_the_view():
    topic = f"{__name__}:Heard"
    factory = Factory({"FOLDLOG_URL": "memory:", Factory.TRACKING_RECORDER_TOPIC: topic})
    assert type(factory.tracking_recorder()).__name__ == "Heard"
    assert type(Factory({"FOLDLOG_URL": "memory:"}).tracking_recorder()) is TrackingView


def test_a_topic_imports_nothing():
    mapper = ConversationMapper(transcoder=None)
    event = ConversationEvent("c1", 3, Observation(tool="ls", content="a"))
    stored = mapper.to_stored_event(event)
    assert stored.topic == "observation/1"
    recorded = ConversationEvent("c1", 3, Observation(id=3, tool="ls", content="a"))
    assert mapper.to_domain_event(stored) == recorded
    for topic in ("os:system", "observation/²", f"observation/{'9' * 5_000}"):
        evil = mapper.to_domain_event(StoredEvent("c1", 0, topic, b"{}"))
        assert evil.event.stored_kind == topic


def test_the_librarys_own_ciphers_are_refused():
    with pytest.raises(InfrastructureFactoryError, match="compresses events itself"):
        Factory({"CIPHER_KEY": "secret"})


def test_events_of_forks_and_the_erased_are_refused(env):
    factory = Factory(env)
    store = Store(factory.recorder.database.recorder)
    recorder = factory.application_recorder()
    say(store, "c", "a", "b")
    store.fork("c", 2, "f")
    first, second = recorder.select_events("f")
    with pytest.raises(IntegrityError):
        recorder.insert_events([second])
    erased(store, "f")
    for event in (first, replace(first, originator_version=2)):
        with pytest.raises(ConversationErased):
            recorder.insert_events([event])
    assert_sound(store)
    factory.close()


class Dog(domain.Aggregate):
    """An aggregate of somebody else."""

    def __init__(self):
        self.tricks = []

    @domain.event("TrickAdded")
    def add(self, trick):
        self.tricks.append(trick)


def test_another_aggregate_is_refused_with_a_hint(env):
    class Kennel(Application[UUID]):
        """An application of somebody else, in the same process."""

    with Kennel(env) as kennel, pytest.raises(InvalidEvent, match="MYAPP_PERSISTENCE_MODULE"):
        kennel.save(Dog())
    with Kennel({**env, "KENNEL_PERSISTENCE_MODULE": "eventsourcing.popo"}) as kennel:
        dog = Dog()
        dog.add("sit")
        kennel.save(dog)
        assert kennel.repository.get(dog.id).tricks == ["sit"]


@pytest.mark.parametrize(
    "error, of_library",
    [
        (StoreUnavailable("an id exists", kind="taken"), "IntegrityError"),
        (StoreUnavailable("no space", kind="full"), "OperationalError"),
        (StoreRefused("it was closed", kind="closed"), "InterfaceError"),
        (StoreRefused("another file", kind="replaced"), "DatabaseError"),
        (StoreDamaged("a page"), "DatabaseError"),
    ],
    ids=lambda value: getattr(value, "kind", value),
)
def test_errors_become_errors_of_the_library(error, of_library):
    with pytest.raises(PersistenceError) as raised, errors_of_the_library():
        raise error
    assert type(raised.value).__name__ == of_library
    assert raised.value.__cause__ is error


def test_a_program_may_have_a_mapper_of_its_own():
    class Own(ConversationMapper):
        pass

    factory = Factory({"FOLDLOG_URL": "memory:"})
    assert type(factory.mapper(None)) is ConversationMapper
    assert type(factory.mapper(None, Own)) is Own
