"""Forks of an imported tree: they begin at the tip of any of its branches."""

import asyncio
import json
import random
from datetime import UTC, datetime

import pytest

from foldlog import aio, open as open_histories
from foldlog.eventstore import ConversationNotFound, InvalidArgument, Observation
from foldlog.formats import decode
from tests.foldlog.formats import openhands_v1_records as v1
from tests.foldlog.records import GOLDEN
from tests.how_many import some
from tests.said import said

CLAUDE_CODE = "claude-code"


def line(name, parent, kind, **more):
    """Return a line of Claude Code."""
    return {"uuid": name, "parentUuid": parent, "type": kind, "sessionId": "s", **more}


def user_line(name, parent, content="why?"):
    return line(name, parent, "user", message={"role": "user", "content": content})


def replied(name, parent, *blocks, response="m1"):
    message = {"id": response, "role": "assistant", "model": "sonnet", "content": list(blocks)}
    return line(name, parent, "assistant", requestId=f"r{response}", message=message)


def text(words):
    return {"type": "text", "text": words}


def use(call_id):
    """A call of Claude Code."""
    return {"type": "tool_use", "id": call_id, "name": "Bash", "input": {}}


def result(name, parent, call_id):
    return user_line(
        name, parent, [{"type": "tool_result", "tool_use_id": call_id, "content": "a b"}]
    )


def imported(histories, name, records, format=CLAUDE_CODE):
    history = histories[name]
    history.append_records(records, format=format)
    return history


def shown(history):
    return [event.origin.id for event in history.view()]


def drawn_records(format, chance):
    """Return records of a tree by chance, each with its id and the id of the record above it."""
    rows = [("n0", None, user_line("n0", None, "n0"))]
    if format == "openhands-v1":
        rows = [("n0", None, v1.message("n0", parent_id=None))]
    for number in range(1, 16):
        above = rows[-1 if chance.random() < 0.6 else chance.randrange(len(rows))][0]
        draw = drawn_step if format == "openhands-v1" else drawn_line
        rows.append((f"n{number}", above, draw(chance, f"n{number}", above, number)))
    return rows


def drawn_line(chance, name, above, number):
    """Return a line of Claude Code."""
    if number % 2:
        return replied(name, above, text(name), response=f"m{number}")
    return user_line(name, above, name)


def drawn_step(chance, name, above, number):
    """Return a step of OpenHands: most are messages; some condense what is anywhere in the tree."""
    kind = chance.choice(["message"] * 3 + ["condensation", "request"])
    if kind == "message":
        return v1.message(name, parent_id=above)
    if kind == "request":
        record = {"kind": "CondensationRequest", "id": name, "source": "environment"}
        return {**record, "parent_id": above}
    forgotten = chance.sample([f"n{before}" for before in range(number)], min(3, number))
    record = v1.condensation(name, *forgotten, parent_id=above)
    summary = {"summary": f"{name}: summary", "summary_offset": 0}
    return record | (summary if chance.random() < 0.5 else {})


def describe_view(view):
    """Return the source ids of a View's events, the texts of its summaries, what a model is sent,
    and whether a condensation is requested.
    """
    events = [event.content if event.id < 0 else event.origin.id for event in view]
    return events, view.to_messages(), view.unhandled_condensation_request


@pytest.mark.parametrize("format", [CLAUDE_CODE, "openhands-v1"])
@pytest.mark.parametrize("seed", some(range(12), 4))
def test_fork_at_a_record_shows_its_branch(histories, seed, format):
    rows = drawn_records(format, random.Random(seed))
    records = [record for _, _, record in rows]
    history = imported(histories, "tree", records, format)
    branches = {None: []}
    for name, above, record in rows:
        branches[name] = [*branches[above], record]
        alone = imported(histories, f"alone {name}", branches[name], format)
        assert describe_view(history.fork(at_source=name).view()) == describe_view(alone.view())
    if format == "openhands-v1":
        assert describe_view(history.view()) == describe_view(alone.view()), (
            "it continues its newest branch"
        )
    assert list(history.export()) == records


def test_fork_at_a_call_has_its_results(histories):
    calls = [replied("b", "a", use("c1")), replied("c", "b", use("c2"))]
    results = [result("d", "b", "c1"), result("e", "c", "c2")]
    later = [
        user_line("f", "e", "other"),
        replied("g", "f", use("c3"), response="m2"),
        user_line("h", "a", "no"),
    ]
    history = imported(histories, "c1", [user_line("a", None), *calls, *results, *later])
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
    history = imported(histories, "c2", [user_line("a", None), *turned, *later])
    assert [shown(history.fork(at_source=name)) for name in "bdce"] == [list("abdce")] * 4


@pytest.mark.parametrize("format", ["otlp-genai", "pydantic-ai"])
def test_fork_has_only_whole_records(histories, format):
    golden = GOLDEN / "imports" / f"{format}.jsonl"
    records = json.loads(golden.read_text().splitlines()[0])["records"]
    history = imported(histories, "c1", records, format)
    ids = dict.fromkeys(event.origin.id for event in history.events() if event.origin.id)
    forks = [list(history.fork(at_source=source_id).export()) for source_id in ids]
    assert forks == [records[: len(fork)] for fork in forks]
    assert [len(fork) for fork in forks[:3]] == {"otlp-genai": [1, 2, 3], "pydantic-ai": [1, 3, 3]}[
        format
    ]


def test_fork_at_a_repeated_id_begins_at_its_last_record(histories):
    records = [
        {"id": n, "source": "user", "action": "message", "args": {"content": str(n)}}
        for n in (4, 7, 4, 9)
    ]
    history = imported(histories, "v0", records, "openhands-v0")
    for name in (7, "7"):
        assert shown(history.fork(at_source=name)) == [4, 7]
    assert shown(history.fork(at_source="4")) == [4, 7, 4]


def test_unknown_source_id_is_refused(histories):
    history = imported(histories, "c1", [user_line("a", None)])
    with pytest.raises(
        InvalidArgument, match="'c1' has no event with the source id 'z' among its 1 event"
    ):
        history.fork(at_source="z")
    with pytest.raises(InvalidArgument, match="not both"):
        history.fork(at=1, at_source="a")
    with pytest.raises(ConversationNotFound):
        histories["nothing"].fork(at_source="a")
    for wrong in (True, 1.0, b"a"):
        with pytest.raises(TypeError, match="at_source must be an id of the imported source"):
            history.fork(at_source=wrong)
    assert list(histories) == ["c1"]


def test_async_face_forks_at_a_source_id(tmp_path):
    async def forked():
        async with aio.open(tmp_path / "s.db") as histories:
            history = histories["c1"]
            await history.append_records(
                [user_line("a", None), user_line("b", "a"), user_line("c", "a")], format=CLAUDE_CODE
            )
            fork = await history.fork(at_source="b")
            return [event.origin.id for event in await fork.view()]

    assert asyncio.run(forked()) == ["a", "b"]


def test_results_after_other_records_are_left_out(histories):
    records = [
        user_line("a", None),
        replied("b", "a", use("c1")),
        user_line("x", "b", "wait"),
        result("d", "x", "c1"),
    ]
    history = imported(histories, "c1", records)
    assert shown(history.fork(at_source="b")) == ["a", "b"]
    assert isinstance(history.fork(at_source="d").view().events[-1], Observation)


def test_list_shows_no_fork_under_a_reused_id(foldlog, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    with open_histories("foldlog.db") as histories:
        histories["c"].append(said("before"))
        histories["c"].fork(at=1, id="f")
        histories.erase("c", reason="asked for", detach_forks=True)
        histories.create("c", replace_erased=True).append(said("again"))
        histories["c"].fork(at=1, id="h")
    names = [line.split("  ")[:2] for line in foldlog("list --short").out.splitlines()[1:]]
    assert [first or f"  {second}" for first, second in names] == ["c", "  h", "f"]


def test_fork_is_not_older_than_itself(tmp_path):
    times = iter(datetime(2026, 3, 1, 12, minute, tzinfo=UTC) for minute in range(60))
    with open_histories(tmp_path / "h.db", clock=lambda: next(times)) as histories:
        histories["c"].append(said("a"))
        histories["c"].fork(at=1, id="f")
        for _ in range(2):
            row = histories.store.conversation("f")
            assert row.created_at <= row.updated_at
            if row.parent is not None:
                histories.erase("c", reason="asked to", detach_forks=True)


# -- a parent that is not in the log


def side_line(name, parent):
    return {**user_line(name, parent), "isSidechain": True, "agentId": "helper"}


@pytest.mark.parametrize(
    "lines, missing",
    [
        ([user_line("q", "elsewhere"), replied("a", "q", text("so"))], []),
        ([user_line("q", None), replied("a", "cut", text("so")), user_line("r", "a")], ["cut"]),
        ([user_line("q", None), user_line("r", "cut"), user_line("s", "cut")], ["cut"]),
        ([user_line("q", None), user_line("r", "one"), user_line("s", "two")], ["one", "two"]),
        ([user_line("q", None), line("p", "q", "progress"), replied("a", "p", text("so"))], []),
        ([user_line("q", None), side_line("p", "q"), replied("a", "p", text("so"))], []),
    ],
)
def test_a_branch_without_its_parent_is_a_finding(lines, missing):
    findings = []
    list(decode(lines, format=CLAUDE_CODE, findings=findings.append))
    assert [
        str(finding).partition("the parent ")[2].partition(",")[0] for finding in findings
    ] == missing


# -- a session that begins with the side chain of a sub-agent

WARMING_UP = [
    {**user_line("w", None, "Warmup"), "isSidechain": True},
    {**replied("v", "w", text("Ready."), response="m0"), "isSidechain": True},
]
SESSION = [user_line("q", None, "sort the mail"), replied("a", "q", text("done"))]


@pytest.mark.parametrize("before", [1, 2])
def test_the_chain_of_the_session_takes_the_place_of_a_side_chain_before_it(before):
    with open_histories("memory:") as histories:
        history = imported(histories, "c", WARMING_UP[:before])
        assert shown(history) == ["w", "v"][:before]
        imported(histories, "c", SESSION)
        assert shown(history) == ["q", "a"]
        assert "parent" not in history.attributes()
        imported(histories, "c", [{**WARMING_UP[1], "uuid": "x"}, user_line("r", "a")])
        assert shown(history) == ["q", "a", "r"]


def test_a_session_after_a_side_chain_has_its_own_name_and_title(tmp_path, foldlog):
    lines = [*WARMING_UP, *SESSION]
    (tmp_path / "log.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in lines))
    foldlog("import log.jsonl")
    listed = foldlog("list --json").out
    foldlog("view s")
    for output in (listed, foldlog("list --json").out):
        (row,) = json.loads(output)["conversations"]
        assert (row["conversation"], row["title"]) == ("s", "sort the mail")
        assert row["parent"] is None


def test_the_log_of_a_sub_agent_shows_its_side_chain_and_names_its_parent(tmp_path, foldlog):
    lines = [side_line("w", None), side_line("v", "w")]
    with open_histories(tmp_path / "foldlog.db") as histories:
        histories.create("s/agent-helper", {"team": "mail"})
        history = imported(histories, "s/agent-helper", lines)
        assert shown(history) == ["w", "v"]
        assert history.attributes()["parent"] == "s"
    (row,) = json.loads(foldlog("list parent=s --json").out)["conversations"]
    assert row["conversation"] == "s/agent-helper"
