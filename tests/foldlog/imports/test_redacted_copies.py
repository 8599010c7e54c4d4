"""Two stores that redact different texts, and then copy to each other, keep none of these texts."""

import inspect
import random
import re
from threading import Event

import pytest

from foldlog import Histories
from foldlog._reports.figures.of_sources import pending_figures
from foldlog.eventstore.maintenance.copy import CopyOptions, compare_stores, copy_conversation
from foldlog.eventstore.sources.reading import about
from foldlog.eventstore.sources.tables import REDACTED, WHERE
from tests.between import Between, Killed, kill_after
from tests.foldlog.imports.imports import (
    Failed,
    Import,
    bytes_of,
    copy_all,
    events_of,
    imported,
    new_store,
    redact_event,
    refused,
    source_of,
)
from tests.foldlog.imports.sessions_with_secret import (
    DAMAGED,
    LINES,
    SECRET,
    conversations_with,
    fork as fork,
    line,
    path as path,
    redact,
    redact_secret,
    write,
)
from tests.sound import assert_sound

KEY = "AKIAIOSFODNN7EXAMPLE"


def recorded(store, conversation, *lines):
    Histories(store)[conversation].append_records(lines, format="claude-code")


def event_with_secret(store, conversation):
    return next(event.id for event in store.events(conversation) if SECRET in repr(event))


def test_redaction_of_a_fork_reaches_its_parent(path, store, target, request):
    copy_all(store, target)  # before the events of the parent are made
    fork = request.getfixturevalue("fork")
    copy_all(store, target, fork)
    redact_secret(target, fork)
    assert "was redacted" in str(refused(target, path, prefix="p-"))
    copy_all(store, target)
    with new_store() as third:
        copy_all(target, third)
        assert conversations_with(target) == conversations_with(third) == []
    assert_sound(target)


def test_equal_counts_hide_no_redaction(store, target):
    recorded(store, "a", *(line(i, f"word {i}") for i in range(10)))
    store.fork("a", 4, "b")
    recorded(store, "b", line(4, SECRET), line(5, "more", "assistant"))
    copy_all(store, target)
    redact_event(target, "b", event_with_secret(target, "b"))
    redact_event(store, "a", 1)
    assert conversations_with(store) == ["b"]
    assert copy_all(target, store, "b") == {"b": None}
    assert conversations_with(store) == []
    assert_sound(store)


def test_longer_target_gets_redactions(store, target):
    recorded(store, "a", line(0, "hello"), line(1, SECRET), line(2, "fine", "assistant"))
    store.fork("a", 3, "b")
    recorded(store, "b", line(3, "on"))
    copy_all(store, target, "b")
    recorded(target, "b", line(4, "further"))
    further = target.version("b")
    redact_event(store, "a", event_with_secret(store, "a"))
    assert copy_all(store, target, "b") == {"b": None}
    assert conversations_with(target) == []
    assert target.version("b") == further
    assert_sound(target)


def test_redaction_without_the_record_names_the_event(path, store, target):
    events_of(store, "s1")
    recorder = target.database.recorder
    target.database.recorder = kill_after(recorder, 3)  # after the events, before their records
    with pytest.raises(Killed):
        copy_all(store, target)
    target.database.recorder = recorder
    redact_secret(target, "s1")
    assert "redact event 2 in the target too" in str(copy_all(target, store))
    redact_secret(store, "s1")
    copy_all(store, target)
    assert conversations_with(store) == conversations_with(target) == []
    assert SECRET.encode() not in bytes_of(store, "s1")


@pytest.mark.parametrize("has_events", [True, False])
def test_copied_fork_repeats_no_redacted_text(has_events, path, store, target):
    copy_all(store, target)
    lines = [*LINES[:2], line(7, "or not"), DAMAGED, line(8, "on", "assistant")]
    fork = imported(store, write(path, lines), where={"branch": SECRET}).conversation
    if has_events:
        store.version(fork)
    redact_secret(target, "s1")
    assert copy_all(store, target, fork) == {fork: None}
    assert conversations_with(target) == []
    assert SECRET not in str(about(source_of(target, fork)))
    assert_sound(target)


def imported_there(store, folder, lines):
    """Import lines at a place with a secret name, without a key that they contain."""
    path = write(folder / "s1.jsonl", lines)
    imported(store, path, where={"branch": SECRET}, is_secret=lambda line: KEY.encode() in line)


WITH_KEY = [*LINES[:2], line(2, f"my key is {KEY}"), LINES[3]]


def test_redacted_place_stays_away_from_a_growing_source(tmp_path, store, target):
    imported_there(store, tmp_path, WITH_KEY[:2])
    copy_all(store, target)
    redact(target)
    for count in (3, 4):
        imported_there(store, tmp_path, WITH_KEY[:count])
        assert copy_all(store, target) == {"s1": None}
        assert SECRET not in str(about(source_of(target, "s1")))


def test_redacted_place_leaves_a_longer_target(tmp_path, store, target):
    imported_there(store, tmp_path, WITH_KEY[:2])
    copy_all(store, target)
    imported_there(target, tmp_path, WITH_KEY[:3])
    redact(store)
    assert copy_all(store, target) == {"s1": None}
    assert SECRET not in str(about(source_of(target, "s1")))
    (unequal,) = compare_stores(store, target)
    assert not unequal.behind


def test_copy_begins_again_after_each_redaction(tmp_path, store, target):
    lines = [line(number, f"word {number}") for number in range(20)]
    imported(store, write(tmp_path / "s1.jsonl", lines))
    store.version("s1")
    recorder = store.database.recorder
    depths = list[int]()

    def redact_next(_number):
        if len(depths) < len(lines):
            depths.append(len(inspect.stack(context=0)))
            store.database.recorder = recorder
            redact_event(store, "s1", len(depths) - 1)
            store.database.recorder = between

    between = Between(recorder, redact_next, ("query",))
    store.database.recorder = between
    copy_conversation(store.database, target.database, "s1", CopyOptions(Event()))
    store.database.recorder = recorder
    assert len(depths) == len(lines)
    assert len({*depths}) < 10  # no copy within a copy
    assert copy_all(store, target) == {"s1": None}
    assert not any(text in str(events_of(target, "s1")) for text in ("word 1", "word 19"))


def assert_true_sums(store, conversation):
    """Compare the stored sums of a source with sums over its stored records."""
    stored, counted = (pending_figures(store, conversation, again=again) for again in (False, True))
    assert stored == counted


@pytest.mark.parametrize("is_longer", [False, True])
def test_sums_of_a_longer_copy_are_its_own(tmp_path, store, target, is_longer):
    imported_there(store, tmp_path, LINES[:2])
    copy_all(store, target)
    if is_longer:
        imported_there(target, tmp_path, LINES[:4])
    redact(store)
    assert copy_all(store, target) == {"s1": None}
    source, copy = source_of(store, "s1"), source_of(target, "s1")
    assert about(copy)[REDACTED] == about(source)[REDACTED]
    assert copy.sums == (b"" if is_longer else source.sums)
    assert_true_sums(target, "s1")


class TwoStores:
    """A session that grows in two stores, which redact its records, and copy to each other."""

    def __init__(self, folder, seed, *stores):
        self.random = random.Random(seed)
        self.path = folder / f"s1-{seed}.jsonl"
        self.stores = stores
        self.lines = []
        self.redacted = {0: set(), 1: set()}
        self.grow()
        imported(stores[0], self.path, prefix="p-")
        copy_all(*stores)

    def grow(self):
        """Import further records. A redacted record may be repeated."""
        for _ in range(self.random.randint(1, 3)):
            number = len(self.lines)
            role = self.random.choice(["user", "assistant"])
            new = line(number, f"word-{number}-", role)
            self.lines.append(new if number < 3 else self.random.choice([new, new, *self.lines]))
        write(self.path, self.lines)
        for outcome in Import(self.random.choice(self.stores), [self.path], prefix="p-"):
            assert not isinstance(outcome, Failed) or "was redacted" in str(outcome.error)

    def match(self):
        """Redact records, which may have no events yet."""
        number = self.random.randrange(2)
        store = self.stores[number]
        word = self.random.choice(
            re.findall(r"word-\d+-", bytes_of(store, "p-s1").decode()) or [""]
        )
        if word:
            redact(store, word)
            self.redacted[number].add(word)

    def use(self):
        self.random.choice(self.stores).version("p-s1")

    def redact(self):
        number = self.random.randrange(2)
        store = self.stores[number]
        words = {
            event.id: re.findall(r"word-\d+-", repr(event)) for event in events_of(store, "p-s1")
        }
        if there := [event_id for event_id, found in words.items() if len(found) == 1]:
            event_id = self.random.choice(there)
            redact_event(store, "p-s1", event_id)
            self.redacted[number].update(words[event_id])

    def copy(self):
        source, target = self.random.sample(self.stores, 2)
        copy_all(source, target)

    def check(self):
        for number, store in enumerate(self.stores):
            assert_sound(store)
            source = source_of(store, "p-s1")
            text = bytes_of(store, "p-s1").decode()
            assert not any(word in text for word in self.redacted[number])
            if source.sums:
                assert_true_sums(store, "p-s1")


@pytest.mark.parametrize("seed", range(10))
def test_stores_that_copy_to_each_other_keep_true_sums(tmp_path, store, target, seed):
    stores = TwoStores(tmp_path, seed, store, target)
    for _ in range(12):
        step = stores.random.choice(["grow", "use", "redact", "match", "match", "copy", "copy"])
        getattr(stores, step)()
        stores.check()


def test_place_that_an_import_told_after_a_redaction_is_copied(tmp_path, store, target):
    lines = [{**each, "cwd": "/src/kites"} for each in LINES]
    path = write(tmp_path / "s1.jsonl", lines[:4])
    imported(store, path)
    copy_all(store, target)
    imported(target, write(path, lines))
    redact_secret(store, "s1")
    assert WHERE not in about(source_of(store, "s1"))
    imported(store, path)
    place = about(source_of(store, "s1"))[WHERE]
    assert place == {"cwd": "/src/kites"}
    assert copy_all(store, target) == {"s1": None}
    assert about(source_of(target, "s1"))[WHERE] == place
