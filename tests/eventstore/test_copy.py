"""A copy follows its source: what it cannot apply whole, it does not apply at all, and says so."""

import random
import re
import threading
from contextlib import suppress

import pytest

from foldlog.eventstore import (
    CannotRedact,
    CondensationAction,
    ConversationErased,
    ConversationHasForks,
    ConversationNotFound,
    CorruptEvent,
    InvalidArgument,
    Store,
    open_store,
)
from foldlog.eventstore.errors import StoreDamaged
from foldlog.eventstore.log import importing
from foldlog.eventstore.log.keys import KeyRing
from foldlog.eventstore.log.reading import ReadTransaction
from foldlog.eventstore.maintenance import copy
from foldlog.eventstore.maintenance.copy import compare_stores, copy_store, keys_of
from foldlog.eventstore.maintenance.rekey import rekey
from foldlog.eventstore.maintenance.verify import Unlisted, readable_conversations
from foldlog.eventstore.recorders.sqlite.reader import SQLiteReader
from foldlog.projections import Views, audit
from tests.between import Killed, kill_after
from tests.privacy import erased, redacted
from tests.said import said, say, texts
from tests.sound import assert_sound
from tests.stored_rows import execute, replace, with_fields

PAGE = 4_096
KEYS = KeyRing(["11" * 32])


def without_page(path, is_that):
    """Overwrite the pages of a file for which ``is_that`` returns true."""
    content = bytearray(path.read_bytes())
    pages = [at for at in range(0, len(content), PAGE) if is_that(bytes(content[at : at + PAGE]))]
    assert pages
    for at in pages:
        content[at : at + PAGE] = b"\xff" * PAGE
    path.write_bytes(content)


@pytest.fixture
def source():
    with open_store("memory:") as store:
        yield store


@pytest.fixture
def target():
    with open_store("memory:") as store:
        yield store


def differing(source, target, *names):
    """Return the conversations that differ, and whether the target is only behind."""
    unequal = compare_stores(source, target, *names)
    return [(found.conversation, found.behind) for found in unequal]


def problems(source, target, *names):
    """Copy conversations, and return the problem of each, or None."""
    return {
        moved.conversation: moved.problem for moved in copy_store(source, target, *names, jobs=1)
    }


def test_diverged_conversation_is_left_and_named(source, target):
    say(source, "a", "secret", "two", "three")
    say(source, "b", "another")
    list(copy_store(source, target))
    redacted(source, "a", 0)
    say(target, "a", "of its own")
    reported = problems(source, target)
    assert reported["b"] is None
    assert "'a' has 4 events, and the other history differs from event 3 on" in reported["a"]
    assert texts(target, "a")[0] == "secret"
    assert_sound(target)
    assert differing(source, target) == [("a", False)]


def test_revisions_are_copied_with_their_events(source):
    source.register(Views(source))
    with open_store("memory:", keys=KEYS) as target:
        for version in (0, 3):
            events = [said("one"), said("two"), CondensationAction(forgotten_event_ids=[version])]
            source.append("a", events, expected_version=version)
            problems(source, target)
        source.fork("a", 5, "fork")
        redacted(source, "a", 0)
        problems(source, target)
        for name, revisions in (("a", 2), ("fork", 1)):
            audited = audit(target, name)
            assert (audited.revisions, audited.missing, audited.findings) == (revisions, 0, ())


def test_redacted_event_shared_in_the_target(source, target):
    say(source, "a", *"abc")
    source.fork("a", 3, "fork")
    problems(source, target)
    redacted(target, "fork", 1)  # In the target, this is an event of the fork itself.
    problem = problems(target, source, "fork")["fork"]
    assert "event 1" in problem
    assert "'a'" in problem
    assert source.version("fork") == 3, "a redaction that was not made has no receipt"
    redacted(source, "a", 1)
    assert problems(target, source, "fork") == {"fork": None}
    assert texts(source, "fork")[:3] == ["a", "[redacted]", "c"]
    source.fork("a", 3, "late")
    problems(source, target)
    redacted(source, "a", 2)  # The forks share this redaction, and keep their heads.
    assert differing(target, source, "late") == []
    assert differing(source, target, "late") == [("late", True)]


def test_idempotency_keys_are_read_during_a_rekey():
    with open_store("memory:", keys=KEYS) as source:
        say(source, "a", "one", idempotency_key="first")
        stored = source.database.recorder.query(lambda reader: source.database.find(reader, "a"))
        list(rekey(source, decrypt=True))
        assert [recalled.events for _, recalled in keys_of(source.database, stored)] == [1]


def test_forged_idempotency_key_is_not_copied(path):
    with open_store(path, keys=KEYS) as source, open_store("memory:", keys=KEYS) as target:
        say(source, "a", "one", idempotency_key="first")
        execute(path, "UPDATE idempotency_keys SET key = 'forged'")
        (moved,) = copy_store(source, target)
        assert "an idempotency key was changed without" in moved.problem
        assert [*target.iter_conversations()] == []


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE events SET body = replace(body, 'two', 'owt')",
        "DELETE FROM events",
        "UPDATE events SET body = x'ff', meta = meta_with(meta, 'encoding', 3)",
    ],
)
def test_copy_up_to_the_first_damaged_event(path, damage, target):
    with open_store(path) as store, open_store("memory:", keys=KEYS) as whole:
        for name in ("a", "b"):
            for text in ("zero", "one", "two", "three", "four"):
                say(store, name, text, idempotency_key=text)
        store.fork("a", 4, "fork")
        say(store, "fork", "own")
        head = store.query("a", lambda read: read.head_at(2))
        execute(path, f"{damage} WHERE conversation = 1 AND id = 2")
        assert [name for name, problem in problems(store, whole).items() if problem] == [
            "a",
            "fork",
        ]
        moved = copy_store(store, target, damaged=True)
        outcomes = {outcome.conversation: outcome for outcome in moved}
        versions = {name: (outcome.version, outcome.damaged) for name, outcome in outcomes.items()}
        assert versions == {"a": (2, 2), "b": (5, None), "fork": (2, 2)}
        assert "event 2: " in outcomes["a"].problem
        for name in ("a", "fork"):
            assert target.query(name, lambda read: read.head) == head
            assert texts(target, name) == ["zero", "one"]
        assert_sound(target)
        assert say(target, "a", "one", idempotency_key="one")[0].id == 1
        assert differing(store, target) == [("a", True), ("fork", True)]


@pytest.mark.parametrize("lost", ["records", "recalled", "unreadable entries"])
def test_damage_beside_the_events_costs_no_event(source, target, monkeypatch, lost):
    def refused(*_, **__):
        raise StoreDamaged("a page is damaged")

    say(source, "a", "zero", "one", idempotency_key="k")
    if lost == "unreadable entries":
        monkeypatch.setattr(ReadTransaction, "origins", refused)
    else:
        monkeypatch.setattr(SQLiteReader, lost, refused)
    (moved,) = copy_store(source, target, damaged=True)
    monkeypatch.undo()
    assert (moved.version, moved.damaged, moved.problem) == (2, 2, "a page is damaged")
    assert [*target.events("a")] == [*source.events("a")]


def test_event_with_another_head_is_not_copied(path, source, target):
    with open_store(path) as store:
        for filled in (store, source):
            say(filled, "a", "zero", "one")
        (own,) = store.query("a", lambda read: read.rows(0, 1, 1))
        (row,) = source.query("a", lambda read: read.rows(0, 1, 1))
        replace(path, "a", row._replace(body=own.body))
        (moved,) = copy_store(store, target, damaged=True)
        assert (moved.damaged, moved.version) == (0, 0)
        assert [*target.conversations()] == []
        assert texts(store, "a") == ["zero", "one"]


@pytest.mark.parametrize("changed", ["body", "proof"])
def test_redaction_of_a_changed_event_is_not_copied(path, source, changed):
    with open_store(path) as target:
        say(source, "a", "zero", "one")
        problems(source, target)
        rows = target.query("a", lambda read: read.rows(0, 2, 2))
        if changed == "body":
            replace(path, "a", rows[0]._replace(body=rows[1].body))
        else:
            replace(path, "a", with_fields(rows[0], proof=rows[1].head + rows[0].proof[32:]))
        redacted(source, "a", 0)
        assert problems(source, target)["a"] == (
            "conversation 'a', event 0: the target has a different event in place of the redacted"
            " event: one of the two events was changed; run 'foldlog store verify', then 'foldlog"
            " store copy --damaged'"
        )
        assert texts(target, "a") == ["one" if changed == "body" else "zero", "one"]


def test_stopped_copy_begins_no_other_conversation(source, target, monkeypatch):
    monkeypatch.setattr(importing, "CHUNK", 1)
    say(source, "long", *["x"] * 300)
    say(source, "short", "x")
    copying = copy_store(source, target, jobs=2)
    assert next(copying).conversation == "short"
    copying.close()  # Ctrl-C in the calling thread does the same.
    assert [row.id for row in target.conversations()] == ["short"]
    assert target.database.recorder.query(lambda reader: reader.unfinished()) == []


def test_killed_copy_has_the_keys_of_its_events(source, target, monkeypatch):
    """An append that is sent again to the copy must not add its events twice."""
    monkeypatch.setattr(importing, "CHUNK", 2)
    say(source, "a", "begin")
    problems(source, target)
    say(source, "a", "one", "two", idempotency_key="first")
    say(source, "a", "three", "four", "five", idempotency_key="second")
    with suppress(Killed):
        problems(source, Store(kill_after(target.database.recorder, 2)))
    assert target.version("a") == 3
    assert say(target, "a", "one", "two", idempotency_key="first")[0].id == 1
    assert target.version("a") == 3


def test_unreadable_page_costs_one_conversation(path, target):
    with open_store(path) as store:
        for name in ("a", "b", "c"):
            say(store, name, *[f"{name} number {n} " + "x" * 300 for n in range(200)])
    without_page(path, lambda page: b"b number 100 " in page)
    with open_store(path) as source:
        reported = problems(source, target)
        assert (reported["a"], reported["c"]) == (None, None)
        assert re.match(r"conversation 'b', event (8|9|10)\d?: it cannot be read", reported["b"])
        assert [row.id for row in target.iter_conversations()] == ["a", "c"]
        assert_sound(target)


def test_second_tombstone_of_an_id_is_copied_once(source, target):
    """A fork may get the id of its erased parent, and be erased too. Then both tombstones have the
    same id and the same head.
    """
    say(source, "a", "one", "two")
    source.fork("a", 2, "fork")
    erased(source, "a", detach_forks=True)
    list(copy_store(source, target))
    source.fork("fork", 2, "a", replace_erased=True)
    erased(source, "a")
    assert differing(source, target) == [("a", False)]
    assert sum(moved.tombstones for moved in copy_store(source, target)) == 1
    assert [row.generation for row in target.iter_conversations()] == [1, 0]
    assert sum(moved.tombstones for moved in copy_store(source, target)) == 0
    assert differing(source, target) == []


def test_other_conversation_with_the_same_end(source, target):
    """Both stores forked a conversation at the same event, under one id."""
    say(source, "a", "one")
    list(copy_store(source, target))
    for store in (source, target):
        store.fork("a", 1, "fork")
    assert differing(source, target) == [("fork", False)]
    reported = problems(source, target)
    assert reported.pop("fork"), "the message says that the histories differ"
    assert set(reported.values()) == {None}


@pytest.fixture(params=["memory", "sqlite"])
def on_each(request, tmp_path):
    """Return an address of a store on the database of the test."""

    def address(name):
        return "memory:" if request.param == "memory" else str(tmp_path / f"{name}.db")

    return address


def siblings(source):
    """Make two forks of a conversation, and a fork of each."""
    say(source, "a", "one", "secret", "three")
    for fork, deep in (("left", "left-deep"), ("right", "right-deep")):
        source.fork("a", 3, fork)
        say(source, fork, f"{fork} four", "five")
        source.fork(fork, 4, deep)
        say(source, deep, f"{deep} five")


@pytest.mark.parametrize("first", ["a", "left", "left-deep"])
@pytest.mark.parametrize("keys", [None, KEYS])
def test_forks_and_ancestors_bring_no_redacted_event_back(on_each, keys, first):
    names = ("a", "left", "left-deep", "right", "right-deep")
    with (
        open_store(on_each("source")) as source,
        open_store(on_each("target"), keys=keys) as target,
    ):
        siblings(source)
        problems(source, target, first)
        redacted(target, first, 1)
        later = [name for name in names if name != first]
        for name in later:
            problem = problems(source, target, name)[name]
            assert f"{name!r}: the target redacted event 1 in {first!r}" in str(problem)
            assert name not in [row.id for row in target.conversations()]
        redacted(source, "a", 1)
        # The target's receipt in "a" is an event of its own, so "a" itself differs from then on.
        differs = {name for name, problem in problems(source, target).items() if problem}
        assert differs == {"a"} & {first}
        assert all("secret" not in texts(target, name) for name in later)
        assert differing(source, target, *later) == []
        assert_sound(target)


def test_detached_fork_brings_no_redacted_event_back(source, target):
    siblings(source)
    problems(source, target, "a")
    redacted(target, "a", 1)
    erased(source, "a", detach_forks=True)
    assert (
        "the target redacted event 1 in 'a'" in problems(source, target, "left-deep")["left-deep"]
    )
    redacted(source, "left", 1)
    assert problems(source, target, "left", "left-deep") == {"left": None, "left-deep": None}


def test_redaction_in_a_fork_refuses_nothing_else(source, target):
    siblings(source)
    problems(source, target, "left", "left-deep")
    redacted(target, "left", 3)  # Only "left" has this event.
    say(target, "right", "another", "conversation")
    redacted(target, "right", 1)
    assert problems(source, target, "a", "right-deep") == dict.fromkeys(("a", "right-deep"))
    assert texts(target, "right-deep")[1] == "secret"
    assert_sound(target)


def test_forks_of_a_detached_fork_share_its_redaction(source, target):
    siblings(source)
    problems(source, target, "left")
    redacted(target, "left", 1)
    erased(source, "a", detach_forks=True)
    copied = problems(source, target, "left-deep", "right-deep")
    assert "the target redacted event 1 in 'left'" in str(copied["left-deep"])
    # "right" has its own copy of the event: a redaction in "left" would not reach it.
    assert copied["right-deep"] is None
    redacted(source, "left", 1)
    assert problems(source, target, "left-deep") == {"left-deep": None}
    assert_sound(target)


def test_conversation_erased_during_a_copy(source, target, monkeypatch):
    say(source, "a", "one", "two")
    say(source, "b", "another")
    stored_rows = copy.stored_rows

    def after_an_erasure(database, conversation, *start):
        if conversation.id == "a":
            erased(source, "a")
        return stored_rows(database, conversation, *start)

    monkeypatch.setattr(copy, "stored_rows", after_an_erasure)
    assert problems(source, target) == {"a": None, "b": None}
    assert target.conversation("a").erased_at is not None
    assert differing(source, target) == []


def readable_but_b(recorder):
    """Yield the conversations of a store whose row of "b" and whose end cannot be read."""
    for state in readable_conversations(recorder):
        yield Unlisted(state.id, "it cannot be read") if state.id == "b" else state
    yield Unlisted(None, "the list cannot be read to its end")


def test_comparison_names_a_row_that_cannot_be_read(source, target, monkeypatch):
    for name in ("a", "b", "c"):
        say(source, name, f"{name} says")
    list(copy_store(source, target))
    monkeypatch.setattr(copy, "readable_conversations", readable_but_b)
    assert [tuple(unequal) for unequal in compare_stores(source, target)] == [
        ("b", "it cannot be read", False),
        ("", "the list cannot be read to its end", False),
    ]


def test_copy_names_a_row_that_cannot_be_read(source, target, monkeypatch):
    for name in ("a", "b", "c"):
        say(source, name, f"{name} says")
    monkeypatch.setattr(copy, "readable_conversations", readable_but_b)
    assert sorted(copy_store(source, target, jobs=1)) == [
        copy.Moved("", 0, 0, "the list cannot be read to its end"),
        copy.Moved("a", 1, 1),
        copy.Moved("b", 0, 0, "it cannot be read"),
        copy.Moved("c", 1, 1),
    ]


@pytest.mark.parametrize(
    "damaged, error, problem, is_up_to_damage",
    [
        (True, CorruptEvent("a", 3, "it is cut"), "event 3: it is cut", True),
        (True, StoreDamaged("its page is lost"), "its page is lost", True),
        (True, CannotRedact("redact it there"), "redact it there", False),
        (False, StoreDamaged("its page is lost"), "its page is lost", False),
        (
            True,
            ConversationErased("a", "2026-01-05", "asked for"),
            "conversation 'a' was erased at 2026-01-05 (asked for); its events are gone",
            False,
        ),
    ],
)
def test_a_problem_of_one_conversation_is_its_outcome(
    source, target, monkeypatch, damaged, error, problem, is_up_to_damage
):
    def fail(*_):
        raise error

    say(source, "a", "says")
    list(copy_store(source, target))
    say(source, "a", "more")
    monkeypatch.setattr(copy, "_copy_with_redactions", fail)
    [outcome] = copy_store(source, target, jobs=1, damaged=damaged)
    assert outcome == copy.Moved("a", 0, 1, problem, damaged=1 if is_up_to_damage else None)


@pytest.mark.parametrize("where", ["source", "target"])
def test_an_erasure_on_one_side_is_not_only_behind(source, target, where):
    say(source, "a", "zero", "one")
    say(source, "b", "zero")
    problems(source, target)
    erased(source if where == "source" else target, "a")
    say(source, "b", "one")
    assert differing(source, target) == [("a", False), ("b", True)]


def test_the_outcome_of_a_copy_is_whole(source, target):
    say(source, "a", "zero", "one")
    say(source, "b", "zero")
    erased(source, "b")
    assert sorted(copy_store(source, target, jobs=1)) == [
        copy.Moved("a", 2, 2),
        copy.Moved("b", 0, 1, tombstones=1),
    ]
    assert sorted(copy_store(source, target, jobs=1)) == [
        copy.Moved("a", 0, 2),
        copy.Moved("b", 0, 1),
    ]


class Growing:
    """A store whose conversations grow, fork, condense, and lose events at random."""

    def __init__(self, store, copy, seed):
        self.store = store
        self.copy = copy
        self.random = random.Random(seed)
        self.names = ["a"]
        self.count = 0
        say(store, "a", "zero", "one", "two")

    def grow(self):
        say(self.store, self.random.choice([*self.names, self.new_name()]), "x", "y")
        self.look()

    def new_name(self):
        self.count += 1
        return f"c{self.count}"

    def look(self):
        rows = self.store.iter_conversations()
        self.names = [row.id for row in rows if row.erased_at is None]

    def fork(self):
        name = self.random.choice(self.names)
        at = self.random.randint(1, self.store.version(name))
        self.store.fork(name, at, self.new_name())
        self.look()

    def condense(self):
        name = self.random.choice(self.names)
        version = self.store.version(name)
        event = CondensationAction(forgotten_event_ids=[0], summary="s", summary_offset=0)
        self.store.append(name, event, expected_version=version)

    def redact(self):
        name = self.random.choice(self.names)
        with suppress(CannotRedact, InvalidArgument):  # the event may be of the parent
            redacted(self.store, name, self.random.randrange(self.store.version(name)))

    def erase(self):
        """Erase a conversation in both stores, because a copy erases nothing."""
        name = self.random.choice(self.names)
        detach = self.random.random() < 0.5
        if len(self.names) > 2:
            with suppress(ConversationHasForks):
                erased(self.store, name, detach_forks=detach)
                with suppress(ConversationNotFound):
                    erased(self.copy, name, detach_forks=True)
            self.look()


@pytest.mark.parametrize("seed", range(8))
def test_after_a_copy_there_is_nothing_left_to_copy(source, target, seed):
    growing = Growing(source, target, seed)
    for _ in range(6):
        for _ in range(4):
            step = ["grow", "grow", "fork", "condense", "redact", "erase"]
            getattr(growing, growing.random.choice(step))()
        some = growing.random.sample(growing.names, min(2, len(growing.names)))
        assert set(problems(source, target, *some).values()) == {None}
        assert {*problems(source, target).values()} == {None}
        assert differing(source, target, *growing.names) == []
        for moved in copy_store(source, target, jobs=1):
            assert moved[1:] == (0, moved.version, None, 0, None, 0)
        for name in growing.names:
            assert [*target.events(name)] == [*source.events(name)]
            assert target.query(name, lambda read: read.head) == source.query(
                name, lambda read: read.head
            )
    assert_sound(source)
    assert_sound(target)


def test_a_copy_that_is_repeated_counts_everything(source, target, monkeypatch):
    """A redaction in the source while it is copied repeats the copy."""
    unchanged = object()
    redactions = [object(), object(), unchanged, unchanged]
    outcomes = [
        copy.Moved("a", 5, 5, None, 1, None, 7),
        copy.Moved("a", 2, 7, None, 3, None, 10),
        copy.Moved("a", 1, 8, "differs", 0, 8, 1),
    ]
    asked = iter(redactions)
    copied = iter(outcomes)
    monkeypatch.setattr(copy, "query_sources", lambda *arguments: next(asked))
    monkeypatch.setattr(copy, "copy_conversation", lambda *arguments: next(copied))
    options = copy.CopyOptions(threading.Event())
    moved = copy._copy_with_redactions(source.database, target.database, "a", options)
    assert moved == copy.Moved("a", 8, 8, "differs", 4, 8, 18)
    assert [*asked, *copied] == []
