"""Forks of an imported tree: they begin at the tip of any of its branches."""

import asyncio
import json
import random
from datetime import UTC, datetime
from pathlib import Path

import pytest

from foldlog import aio, open as open_histories
from foldlog.eventstore import ConversationNotFound, InvalidArgument, Observation
from tests.foldlog.formats import test_openhands_v1 as v1
from tests.foldlog.formats.test_claude_code import asked, replied, result, text, use
from tests.how_many import some
from tests.said import said

CLAUDE_CODE = "claude-code"


def imported(histories, name, records, format=CLAUDE_CODE):
    history = histories[name]
    history.append_records(records, format=format)
    return history


def shown(history):
    return [event.origin.id for event in history.view()]


def branch_of(records, tip):
    """The records from the root to ``tip``."""
    by_name = {record["uuid"]: record for record in records}
    found = []
    while tip is not None:
        found.append(by_name[tip])
        tip = by_name[tip]["parentUuid"]
    return found[::-1]


@pytest.mark.parametrize("seed", some(range(12), 4))
def test_a_fork_at_any_line_of_a_tree_shows_the_branch_that_ends_there(histories, seed):
    chance = random.Random(seed)
    records = [asked("n0", None, "n0")]
    for number in range(1, 14):
        above = records[-1 if chance.random() < 0.6 else chance.randrange(len(records))]["uuid"]
        name = f"n{number}"
        is_reply = number % 2
        reply = replied(name, above, text(name), response=f"m{number}")
        records.append(reply if is_reply else asked(name, above, name))
    history = imported(histories, "tree", records)
    for record in records:
        fork = history.fork(at_source=record["uuid"])
        alone = imported(histories, f"alone {record['uuid']}", branch_of(records, record["uuid"]))
        assert shown(fork) == shown(alone)
        assert fork.view().to_messages() == alone.view().to_messages()
    assert list(history.export()) == records


def in_view(view):
    """The source ids of a View's events, the texts of its summaries, and whether a condensation is
    requested.
    """
    shown = [event.content if event.id < 0 else event.origin.id for event in view]
    return shown, view.unhandled_condensation_request


@pytest.mark.parametrize("seed", some(range(12), 4))
def test_a_fork_at_any_step_of_a_tree_of_openhands_shows_the_branch_that_ends_there(
    histories, seed
):
    chance = random.Random(seed)
    records = [v1.message("n0", parent_id=None)]
    for number in range(1, 16):
        above = records[-1 if chance.random() < 0.6 else chance.randrange(len(records))]["id"]
        name, before = f"n{number}", [record["id"] for record in records]
        forgets = v1.condensation(name, *chance.sample(before, min(3, number)), parent_id=above)
        if chance.random() < 0.5:
            forgets |= {"summary": f"{name}: summary", "summary_offset": 0}
        asks = {
            "kind": "CondensationRequest",
            "id": name,
            "source": "environment",
            "parent_id": above,
        }
        records.append(chance.choice([v1.message(name, parent_id=above)] * 3 + [forgets, asks]))
    above = {record["id"]: record["parent_id"] for record in records}
    history = imported(histories, "tree", records, "openhands-v1")
    for tip in above:
        branch, place = set(), tip
        while place is not None:
            branch.add(place)
            place = above[place]
        alone = [record for record in records if record["id"] in branch]
        expected = imported(histories, f"alone {tip}", alone, "openhands-v1").view()
        assert in_view(history.fork(at_source=tip).view()) == in_view(expected)
        if tip == records[-1]["id"]:
            assert in_view(history.view()) == in_view(expected)
    assert list(history.export()) == records


def test_a_fork_at_a_call_or_a_result_has_the_whole_response_and_all_its_results(histories):
    calls = [replied("b", "a", use("c1")), replied("c", "b", use("c2"))]
    results = [result("d", "b", "c1"), result("e", "c", "c2")]
    later = [
        asked("f", "e", "other"),
        replied("g", "f", use("c3"), response="m2"),
        asked("h", "a", "no"),
    ]
    history = imported(histories, "c1", [asked("a", None), *calls, *results, *later])
    for name in "bcde":
        fork = history.fork(at_source=name)
        assert shown(fork) == list("abcde")
        assert fork.open_calls() == ()
    assert shown(history.fork(at_source="a")) == ["a"]
    assert shown(history.fork(at_source="g")) == list("abcdefg")
    assert [call.call_id for call in history.fork(at_source="g").open_calls()] == ["c3"]
    turned = [
        replied("b", "a", use("c1")),
        result("d", "b", "c1"),
        replied("c", "d", use("c2")),
        result("e", "c", "c2"),
    ]
    history = imported(histories, "c2", [asked("a", None), *turned, *later])
    assert [shown(history.fork(at_source=name)) for name in "bdce"] == [list("abdce")] * 4


@pytest.mark.parametrize("format", ["otlp-genai", "pydantic-ai"])
def test_a_fork_at_a_record_of_several_events_has_only_whole_records(histories, format):
    golden = Path(__file__).parents[1] / "golden" / "imports" / f"{format}.jsonl"
    records = json.loads(golden.read_text().splitlines()[0])["records"]
    history = imported(histories, "c1", records, format)
    ids = dict.fromkeys(event.origin.id for event in history.events() if event.origin.id)
    forks = [list(history.fork(at_source=each).export()) for each in ids]
    assert forks == [records[: len(fork)] for fork in forks]
    assert [len(fork) for fork in forks[:3]] == {"otlp-genai": [1, 2, 3], "pydantic-ai": [1, 3, 3]}[
        format
    ]


def test_ids_that_are_numbers_are_found_as_texts_too_and_the_last_of_equal_ids_counts(histories):
    records = [
        {"id": n, "source": "user", "action": "message", "args": {"content": str(n)}}
        for n in (4, 7, 4, 9)
    ]
    history = imported(histories, "v0", records, "openhands-v0")
    for name in (7, "7"):
        assert shown(history.fork(at_source=name)) == [4, 7]
    assert shown(history.fork(at_source="4")) == [4, 7, 4]


def test_an_id_that_no_event_has_and_a_version_beside_it_are_refused(histories):
    history = imported(histories, "c1", [asked("a", None)])
    with pytest.raises(
        InvalidArgument, match="'c1' has no event with the source id 'z' among its 1 event"
    ):
        history.fork(at_source="z")
    with pytest.raises(InvalidArgument, match="not both"):
        history.fork(at=1, at_source="a")
    with pytest.raises(ConversationNotFound):
        histories["nothing"].fork(at_source="a")
    assert list(histories) == ["c1"]


def test_the_async_face_forks_at_a_source_id_too(tmp_path):
    async def forked():
        async with aio.open(tmp_path / "s.db") as histories:
            history = histories["c1"]
            await history.append_records(
                [asked("a", None), asked("b", "a"), asked("c", "a")], format=CLAUDE_CODE
            )
            fork = await history.fork(at_source="b")
            return [event.origin.id for event in await fork.view()]

    assert asyncio.run(forked()) == ["a", "b"]


def test_the_command_forks_at_a_source_id(foldlog, write):
    log = write("s.jsonl", [asked("a", None), asked("b", "a"), asked("c", "a")])
    assert foldlog("import", log, "--conversation", "c1").status == 0
    ran = foldlog("fork c1 left --at-source b --json")
    assert (ran.status, ran.document["parent"], ran.document["version"]) == (0, "c1", 2)
    assert foldlog("view left --json").document["ids"] == [0, 1]
    refused = foldlog("fork c1 z --at-source z")
    assert (refused.status, refused.out) == (2, "")
    assert "no event with the source id 'z'" in refused.err
    both = foldlog("fork c1 z --at-source b --at 1")
    assert both.status == 2
    assert "--at-source" in both.err


def test_results_that_others_part_from_their_response_are_not_gathered(histories):
    records = [
        asked("a", None),
        replied("b", "a", use("c1")),
        asked("x", "b", "wait"),
        result("d", "x", "c1"),
    ]
    history = imported(histories, "c1", records)
    assert shown(history.fork(at_source="b")) == ["a", "b"]
    assert isinstance(history.fork(at_source="d").view().events[-1], Observation)


def test_a_list_shows_no_fork_under_another_conversation_with_the_id_of_its_parent(
    foldlog, monkeypatch
):
    monkeypatch.setenv("COLUMNS", "100")
    with open_histories("foldlog.db") as histories:
        histories["c"].append(said("before"))
        histories["c"].fork(at=1, id="f")
        histories.erase("c", reason="asked for", detach_forks=True)
        histories.create("c", replace_erased=True).append(said("again"))
        histories["c"].fork(at=1, id="h")
    names = [line.split("  ")[:2] for line in foldlog("list --short").out.splitlines()[1:]]
    assert [first or f"  {second}" for first, second in names] == ["c", "  h", "f"]


def test_a_fork_was_not_recorded_before_it_was_made(tmp_path):
    times = iter(datetime(2026, 3, 1, 12, minute, tzinfo=UTC) for minute in range(60))
    with open_histories(tmp_path / "h.db", clock=lambda: next(times)) as histories:
        histories["c"].append(said("a"))
        histories["c"].fork(at=1, id="f")
        for _ in range(2):
            row = histories.store.conversation("f")
            assert row.created_at <= row.updated_at
            if row.parent is not None:
                histories.erase("c", reason="asked to", detach_forks=True)
