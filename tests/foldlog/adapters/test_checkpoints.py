"""Checkpoints of a runtime are versions of conversations. In whatever order a runtime stores them,
each is read back unchanged.
"""

from functools import partial

import pytest
from hypothesis import given, strategies as st

import foldlog
from foldlog.adapters._langgraph.checkpoints import Checkpoints
from foldlog.adapters._langgraph.record_lists import WRITES, Listed
from foldlog.adapters._shared import erase_all, with_those_below
from foldlog.eventstore import Annotation, DocumentChanges
from foldlog.runtimes import companion
from tests.how_many import examples
from tests.said import ids, said
from tests.sound import assert_sound

THREAD = "runtime/t"


def record(name):
    data = {
        "content": name,
        "additional_kwargs": {},
        "response_metadata": {},
        "type": "human",
        "name": None,
        "id": name,
    }
    return {"type": "human", "data": data}


def key(record):
    return record["data"]["id"].encode()


def same(value):
    return value


def keys_and_ids(records):
    return Listed(
        [key(record) for record in records],
        [record["data"]["id"] for record in records],
        records.__getitem__,
    )


def put(checkpoints, number, parent, names, document=None):
    """Put a checkpoint with these records and one document."""
    records = None if names is None else [record(name) for name in names]
    listed = None if records is None else keys_and_ids(records)
    checkpoints.put(
        THREAD,
        f"{number:03}",
        parent,
        {"n": number},
        lambda before: ({}, {"d": document}),
        lambda *before: listed,
    )


def contents(checkpoints, checkpoint):
    whole = checkpoints.whole(THREAD, checkpoint)
    records = (
        None if checkpoint.ranges is None else [record["data"]["id"] for record in whole.values]
    )
    return records, whole.documents["d"], checkpoint.parent


def opened(histories):
    return Checkpoints(
        histories, "langchain", same, keys_and_ids, lambda thread: {}, lambda values: None
    )


@pytest.fixture
def checkpoints(histories):
    return opened(histories)


@st.composite
def steps(draw):
    """Steps of a runtime: the number of the parent, what stays of its records, how many are new,
    and what happens before the step.
    """
    counts = st.integers(0, 5)
    flags = st.lists(st.booleans(), max_size=6)
    return [
        (
            draw(st.one_of(st.just(number - 1), st.integers(-1, number - 1))),
            draw(st.one_of(st.just("all"), st.just("all"), counts, flags)),
            draw(st.integers(0, 3)),
            draw(st.sampled_from(["", "", "foreign", "reopen", "none"])),
        )
        for number in range(draw(st.integers(1, 9)))
    ]


def kept_of(names, keeps):
    """Return the names to keep: all names, the first names, or the names with a flag."""
    if keeps == "all":
        return names
    if isinstance(keeps, int):
        return names[:keeps]
    flags = [*keeps, *[True] * len(names)]
    return [name for name, stays in zip(names, flags, strict=False) if stays]


@examples(40)
@given(steps())
def test_each_checkpoint_is_what_was_put(drawn_steps):
    with foldlog.open("memory:") as histories:
        checkpoints = opened(histories)
        expected = {}
        fresh = iter(range(1_000))
        for number, (parent, keeps, count, event) in enumerate(drawn_steps):
            if event == "reopen":
                checkpoints = opened(histories)
            if event == "foreign" and expected:
                checkpoint = checkpoints.find(THREAD)
                histories[checkpoint.branch].append([Annotation(name="x"), said("from us")])
            before = expected[parent][0] if parent >= 0 else None
            stay = kept_of(before or [], keeps)
            names = None if event == "none" else [*stay, *(f"r{next(fresh)}" for _ in range(count))]
            above = None if parent < 0 else f"{parent:03}"
            expected[number] = names, {"v": [number, names]}, above
            put(checkpoints, number, above, names, {"v": [number, names]})
            view = histories[checkpoints.find(THREAD).branch].view()
            assert [shown.content for shown in view if shown.origin] == (names or [])
        for reader in (checkpoints, opened(histories)):
            for number, values in expected.items():
                assert contents(reader, reader.find(THREAD, f"{number:03}")) == values
            walked = [
                (checkpoint.id, contents(reader, checkpoint)) for checkpoint in reader.walk(THREAD)
            ]
            assert walked == [(f"{number:03}", expected[number]) for number in reversed(expected)]
        assert_sound(histories.store)


def test_child_with_a_smaller_id_is_a_fork(checkpoints):
    """Clocks of two machines differ; ids ascend in a branch, so that the newest checkpoint is the
    one at its end.
    """
    put(checkpoints, 5, None, "a")
    put(checkpoints, 3, "005", "ab")
    put(checkpoints, 4, "003", "abc")
    put(checkpoints, 6, "005", "ax")
    assert [(checkpoint.id, checkpoint.branch) for checkpoint in checkpoints.walk(THREAD)] == [
        ("006", THREAD),
        ("005", THREAD),
        ("004", f"{THREAD}/@003"),
        ("003", f"{THREAD}/@003"),
    ]
    assert contents(checkpoints, checkpoints.find(THREAD, "004"))[0] == [*"abc"]


def test_notes_are_found_whatever_came_between_them(checkpoints):
    for number, checkpoint in enumerate(("000", "001", "001", "002", "001", "003", "003")):
        checkpoints.note(THREAD, checkpoint, "note", {"n": number})
    assert checkpoints.notes(THREAD, "003") == [{"n": 5}, {"n": 6}]
    assert checkpoints.notes(THREAD, "001") == [{"n": 1}, {"n": 2}, {"n": 4}]
    checkpoints.note(THREAD, "002", "note", {"n": 9})
    checkpoints.note(THREAD, "002", "note", {"n": 10})
    assert checkpoints.notes(THREAD, "002") == [{"n": 3}, {"n": 9}, {"n": 10}], (
        "others came between them"
    )


def test_documents_of_the_newest_checkpoint(checkpoints, histories):
    put(checkpoints, 0, None, "a", "zero")
    put(checkpoints, 1, "000", "ab", "one")
    put(checkpoints, 2, "000", "ac", "two")
    for event in (None, Annotation(name="x"), said("from us")):
        if event is not None:
            for branch in (THREAD, f"{THREAD}/@002"):
                histories[branch].append(event)
        newest, _ = opened(histories).newest(THREAD)
        assert (newest.checkpoint.id, newest.documents["d"]) == ("002", "two")
        reader = opened(histories)
        assert contents(reader, reader.find(THREAD, "001"))[1] == "one"


def test_hidden_checkpoints_are_left_out(checkpoints, histories):
    for number in range(4):
        put(checkpoints, number, f"{number - 1:03}" if number else None, "abcd"[: number + 1])
    checkpoints.hide(THREAD, ["003"])
    checkpoints.hide(THREAD, below="001")
    assert ids(opened(histories).walk(THREAD)) == ["002", "001"]
    assert checkpoints.find(THREAD, "003") is None
    assert contents(checkpoints, checkpoints.find(THREAD, "003", with_hidden=True))[0] == [*"abcd"]
    put(checkpoints, 4, "002", "abcx")
    assert checkpoints.find(THREAD).branch == f"{THREAD}/@004"
    assert contents(checkpoints, checkpoints.find(THREAD))[0] == [*"abcx"]
    assert checkpoints.newest(THREAD)[0] == checkpoints.whole(THREAD, checkpoints.find(THREAD))
    checkpoints.hide(THREAD, ["004"])
    assert checkpoints.newest(THREAD)[0].checkpoint == checkpoints.find(THREAD)
    assert checkpoints.newest(THREAD, with_hidden=True)[0].checkpoint.id == "004"
    assert checkpoints.newest(f"{THREAD}/none")[0] is None


def test_put_after_an_erasure_begins_again(histories):
    """The thread may be erased between the look and the append, and an earlier checkpoint may have
    been put twice.
    """
    checkpoints = opened(histories)
    other = opened(histories)
    put(checkpoints, 0, None, "a")
    put(checkpoints, 1, "000", "ab", "once")
    put(checkpoints, 2, "000", "ac", "a fork")
    for number, parent, names in ((1, "000", "abd"), (3, "001", "abdf"), (4, "002", "acg")):
        erase_all(histories, with_those_below(histories, THREAD), "deleted")
        assert checkpoints.find(THREAD) is None
        put(checkpoints, number, parent, names, number)
        for reader in (checkpoints, other, opened(histories)):
            assert [(each.id, contents(reader, each)[0]) for each in reader.walk(THREAD)] == [
                (f"{number:03}", [*names])
            ]
            assert contents(reader, reader.find(THREAD, f"{number:03}"))[:2] == (
                [*names],
                number,
            )


def test_put_beside_another_writer_is_a_fork(monkeypatch, histories):
    """Another process puts a child of the same parent between the look and the append."""
    ours = opened(histories)
    theirs = opened(histories)
    put(ours, 0, None, "a")
    changes = Checkpoints._changes
    others = [partial(put, theirs, 1, "000", "ab")]

    def raced(self, *looked):
        changed = changes(self, *looked)
        if self is ours and others:
            others.pop()()
        return changed

    monkeypatch.setattr(Checkpoints, "_changes", raced)
    put(ours, 2, "000", "ac")
    branches = [(version.branch, contents(ours, version)[0]) for version in ours.walk(THREAD)]
    assert branches == [(f"{THREAD}/@002", ["a", "c"]), (THREAD, ["a", "b"]), (THREAD, ["a"])]


@pytest.mark.parametrize("first_gone", ["", "a", "d"])
def test_removed_records_take_their_summary(checkpoints, first_gone, histories):
    put(checkpoints, 0, None, "abcdef")
    history = histories[THREAD]
    history.append(
        foldlog.CondensationAction(
            forgotten_event_ids=[1, 2, 3], summary="of b, c, d", summary_offset=1
        )
    )
    remaining = "abcdef".replace(first_gone, "") if first_gone else "abcdef"
    put(checkpoints, 1, "000", remaining)
    assert any(event.id < 0 for event in history.view())
    put(checkpoints, 2, "001", remaining[-1:])
    assert [event.content for event in history.view()] == remaining[-1:].split()
    put(checkpoints, 3, "002", "")
    assert list(history.view()) == []


def test_thread_continues_after_any_redaction():
    for number in range(4):
        with foldlog.open("memory:") as histories:
            checkpoints = opened(histories)
            for each, names in enumerate(("a", "ab", "abc", "abd")):
                put(checkpoints, each, f"{each - 1:03}" if each else None, names, f"value {each}")
            history = histories[THREAD]
            documents = [
                event.id for event in history.events() if isinstance(event, DocumentChanges)
            ]
            for event_id in documents[number:][::-1]:
                history.redact(event_id, reason="asked to")
            for reader in (checkpoints, opened(histories)):
                assert ids(reader.walk(THREAD)) == [f"{each:03}" for each in range(number)][::-1]
            put(checkpoints, 9, f"{number - 1:03}" if number else None, "xy", "new")
            for reader in (checkpoints, opened(histories)):
                assert contents(reader, reader.find(THREAD))[:2] == (["x", "y"], "new")


def test_fork_repeats_no_redacted_value(checkpoints, histories):
    put_small = partial(checkpoints.put, THREAD, body={}, listed=lambda *before: None)
    first = {"small": {"flower": "marigold"}, "channels": ["flower"]}
    put_small("000", parent=None, channels=lambda before: (first, {}))
    put_small("001", parent="000", channels=lambda before: ({"small": {}, "channels": []}, {}))
    values = []

    def repeat_small(before):
        values.append({} if before.value is None else before.value["small"])
        if len(values) == 1:
            histories[THREAD].redact(0, reason="asked to")
        return {"small": values[-1], "channels": []}, {}

    put_small("002", parent="000", channels=repeat_small)
    assert values == [{"flower": "marigold"}, {}]
    assert checkpoints.find(THREAD, "002").value["small"] == {}


def test_redacted_note_is_not_cached(checkpoints, histories):
    for flower in ("tulip", "marigold"):
        checkpoints.note(THREAD, "000", "writes", {"flower": flower})
    assert checkpoints.notes_here(THREAD, "000") == [
        {"flower": "tulip"},
        {"flower": "marigold"},
    ]
    histories[companion(THREAD, "writes")].redact(1, reason="asked to")
    assert checkpoints.notes_here(THREAD, "000") == [{"flower": "tulip"}]


@pytest.mark.parametrize("is_late", [False, True])
def test_note_redacted_meanwhile_is_not_repeated(checkpoints, histories, is_late):
    put(checkpoints, 0, None, "x")
    write_note = partial(checkpoints.note, THREAD, "000", "writes", {"flower": "marigold"})
    if not is_late:
        write_note()
    notes = []

    def listed(before, records):
        if is_late and not notes:
            write_note()
        notes.append(checkpoints.notes_here(THREAD, "000"))
        if len(notes) == 1:
            histories[companion(THREAD, "writes")].redact(0, reason="asked to")
        names = ["x", *(note["flower"] for note in notes[-1])]
        return keys_and_ids([record(name) for name in names])

    body = {"delta": WRITES}
    checkpoints.put(THREAD, "001", "000", body, lambda before: ({}, {}), listed)
    assert notes == [[{"flower": "marigold"}], []]
    assert "marigold" not in repr(list(histories[THREAD].events()))
    assert checkpoints.find(THREAD).id == "001"


def test_detached_branch_has_its_shared_checkpoints(checkpoints, histories):
    put(checkpoints, 0, None, "x")
    put(checkpoints, 1, "000", "xy")
    put(checkpoints, 2, "000", "xz")
    assert ids(checkpoints.walk(THREAD)) == ["002", "001", "000"]
    histories.erase(THREAD, reason="asked to", detach_forks=True)
    assert ids(checkpoints.walk(THREAD)) == ["002", "000"]
