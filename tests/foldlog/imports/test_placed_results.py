"""Claude Code 2.1.88 wrote some results before their calls. A View shows such a result after its
call, figures count it once, and a redaction deletes it wherever it is. A call whose result was never
written gets the result that its program sends.
"""

import json
from itertools import pairwise

import pytest

from foldlog import Histories
from foldlog.eventstore import Message, Observation
from foldlog.eventstore.usage import PLACED_FROM
from foldlog.formats.resuming import WINDOW_MAX
from tests.between import at_each_moment
from tests.figures import FiguresOfStore, Where
from tests.foldlog.imports.imports import (
    bytes_of,
    events_of,
    figures_of,
    imported,
    new_store,
    open_with_imports,
    redact_event,
)
from tests.stored_rows import execute

SECRET = "the key hangs behind the rain barrel"
_TIME = "2026-05-02T07:00:0{}.000Z"


def line(number, uuid, parent, role, block, response=None):
    message = {"role": role, "content": [block]}
    if response is not None:
        message |= {"id": response, "model": "m"}
    return {
        "type": role,
        "uuid": uuid,
        "parentUuid": parent,
        "sessionId": "garden",
        "timestamp": _TIME.format(number),
        "message": message,
    }


def text(words):
    return {"type": "text", "text": words}


ASKED = line(1, "u1", None, "user", text("Where is the key?"))
SAID = line(2, "a1", "u1", "assistant", text("I look."), "m1")
CALL = line(
    3, "c1", "a1", "assistant", {"type": "tool_use", "id": "t1", "name": "look", "input": {}}, "m1"
)
RESULT = line(
    4, "r1", "c1", "user", {"type": "tool_result", "tool_use_id": "t1", "content": SECRET}
)
ANSWER = line(5, "a2", "r1", "assistant", text("I found it."), "m2")
SOURCE = [ASKED, SAID, RESULT, CALL, ANSWER]
IN_ORDER = [ASKED, SAID, CALL, RESULT, ANSWER]


def write(path, lines):
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return path


def prompt(history):
    return history.view().to_messages(dialect="anthropic")


def test_prompt_is_the_prompt_of_the_lines_in_order(store, tmp_path):
    with new_store() as other:
        imported(other, write(tmp_path / "in_order.jsonl", IN_ORDER))
        expected = prompt(Histories(other)["garden"])
    imported(store, write(tmp_path / "garden.jsonl", SOURCE))
    messages = prompt(Histories(store)["garden"])
    assert messages == expected
    assert SECRET in json.dumps(messages, default=str)


def test_an_odd_value_in_a_later_event_ends_no_redaction(store, tmp_path):
    imported(store, write(tmp_path / "garden.jsonl", SOURCE))
    history = Histories(store)["garden"]
    history.append(Message(content="Thanks.", source="user", meta={PLACED_FROM: [2]}))
    first, _ = (event for event in events_of(store, "garden") if isinstance(event, Observation))
    redact_event(store, "garden", first.id)
    assert SECRET not in json.dumps(prompt(history), default=str)


@pytest.mark.parametrize("failed", [False, True])
def test_figures_count_a_result_once(store, tmp_path, failed):
    block = {**RESULT["message"]["content"][0], "is_error": failed}
    result = {**RESULT, "message": {"role": "user", "content": [block]}}
    lines = [result if line is RESULT else line for line in SOURCE]
    imported(store, write(tmp_path / "garden.jsonl", lines))
    figures = figures_of(store, "garden")
    assert figures["state"] == "answer"
    assert figures["errors"] == failed
    events_of(store, "garden")
    assert figures_of(store, "garden") == figures


def test_a_placed_result_is_no_event_of_a_list(store, tmp_path):
    imported(store, write(tmp_path / "garden.jsonl", SOURCE))
    assert sum(PLACED_FROM in event.meta for event in events_of(store, "garden")) == 1
    expected = store.version("garden") - 1
    figures = FiguresOfStore(store)
    ((_, listed),) = figures.of([store.conversation("garden")])
    total = sum(figures.totals(Where(only=["garden"])).events.values())
    assert (listed.overview.events, total) == (expected, expected)


def use(call_id):
    return {"type": "tool_use", "id": call_id, "name": "look", "input": {}}


def far(parent, count=2 * WINDOW_MAX):
    """Return a chain of messages below a line, the last one with the id "end". By default, there
    are more than a decoder reads again before it continues.
    """
    parents = [parent, *(f"p{number}" for number in range(count))]
    return [
        line(4, uuid, above, "user", text("Are you there?"))
        for above, uuid in pairwise([*parents, "end"])
    ]


GROWING = {
    "the call follows its result": SOURCE,
    "the call comes far after its result": [
        ASKED,
        RESULT,
        *far("r1"),
        line(5, "c1", "end", "assistant", use("t1"), "m2"),
    ],
    "one of two calls has no result": [
        ASKED,
        line(2, "c1", "u1", "assistant", use("t1"), "m1"),
        line(3, "c2", "c1", "assistant", use("t2"), "m1"),
        RESULT,
        *far("r1"),
        {**ANSWER, "parentUuid": "end"},
    ],
}


@pytest.mark.parametrize("lines", GROWING.values(), ids=GROWING)
def test_source_that_grows_has_the_same_events(store, tmp_path, lines):
    path = tmp_path / "garden.jsonl"
    for length in [*range(1, len(lines), 5), len(lines) - 1, len(lines)]:
        imported(store, write(path, lines[:length]))
        events_of(store, "garden")
    with new_store() as other:
        imported(other, path)
        assert events_of(store, "garden") == events_of(other, "garden")
    assert any(PLACED_FROM in event.meta for event in events_of(store, "garden"))


def test_a_redaction_finds_a_copy_that_was_placed_far_behind(store, tmp_path):
    call = line(5, "c1", "end", "assistant", use("t1"), "m2")
    between = far("r1", 1_100)
    imported(store, write(tmp_path / "garden.jsonl", [ASKED, RESULT, *between, call]))
    events = events_of(store, "garden")
    (copy,) = (event.id for event in events if PLACED_FROM in event.meta)
    assert copy > 1_100
    redact_event(store, "garden", 1)
    assert SECRET not in json.dumps(prompt(Histories(store)["garden"]), default=str)
    assert SECRET not in str(events_of(store, "garden"))


def entry(number, **message):
    return {
        "type": "message",
        "id": f"e{number}",
        "parentId": f"e{number - 1}" if number else None,
        "timestamp": "2026-05-02T07:00:00.000Z",
        "message": {"timestamp": 1, **message},
    }


def event(number, kind, **data):
    return {
        "type": kind,
        "id": f"e{number}",
        "parentId": f"e{number - 1}" if number else None,
        "timestamp": "2026-05-02T07:00:00.000Z",
        "data": data,
    }


PI = [
    {"type": "session", "id": "mill", "timestamp": "2026-05-02T07:00:00.000Z", "cwd": "/"},
    entry(0, role="user", content="Grind."),
    entry(
        1,
        role="assistant",
        content=[{"type": "toolCall", "id": "t1", "name": "grind", "arguments": {}}],
        provider="p",
    ),
    *(entry(number, role="bashExecution", command="ls") for number in range(2, 40)),
    entry(40, role="user", content="Does it turn?"),
]
COPILOT = [
    event(0, "session.start", sessionId="mill", version=1),
    event(1, "user.message", content="Grind."),
    event(2, "assistant.message", messageId="m1", toolRequests=[{"toolCallId": "t1"}]),
    *(event(number, "session.info", message=f"{number}") for number in range(3, 40)),
    event(40, "assistant.message", messageId="m2", content="It turns."),
]


def message(number, kind, content, **fields):
    return {
        "id": f"e{number}",
        "timestamp": "2026-05-02T07:00:00.000Z",
        "type": kind,
        "content": content,
        **fields,
    }


GEMINI = [
    {
        "sessionId": "mill",
        "projectHash": "p",
        "startTime": "2026-05-02T07:00:00.000Z",
        "lastUpdated": "2026-05-02T07:00:00.000Z",
    },
    message(0, "user", [{"text": "Grind."}]),
    message(1, "gemini", "", toolCalls=[{"id": "t1", "name": "grind", "args": {}}]),
    *(message(number, "info", "It is slow.") for number in range(2, 40)),
    message(40, "user", [{"text": "Does it turn?"}]),
]


def part(number, kind, value, **fields):
    return {
        "uuid": f"e{number}",
        "parentUuid": f"e{number - 1}" if number else None,
        "sessionId": "mill",
        "timestamp": "2026-05-02T07:00:00.000Z",
        "type": kind,
        "message": {"role": "model" if kind == "assistant" else "user", "parts": [value]},
        **fields,
    }


QWEN = [
    part(0, "user", {"text": "Grind."}),
    part(1, "assistant", {"functionCall": {"id": "t1", "name": "grind", "args": {}}}),
    *(
        part(number, "system", {}, subtype="ui_telemetry", systemPayload={"n": number})
        for number in range(2, 40)
    ),
    part(40, "user", {"text": "Does it turn?"}),
]
FAR = {"pi": PI, "copilot-cli": COPILOT, "gemini-cli": GEMINI, "qwen-code": QWEN}


@pytest.mark.parametrize("lines", FAR.values(), ids=FAR)
def test_call_far_above_gets_its_result_before_the_next_message(store, tmp_path, lines):
    path = tmp_path / "mill.jsonl"
    for length in (len(lines) - 1, len(lines)):
        imported(store, write(path, lines[:length]))
        events_of(store, "mill")
    with new_store() as other:
        imported(other, path)
        assert events_of(store, "mill") == events_of(other, "mill")
    *_, supplied, last = events_of(store, "mill")
    assert (supplied.call_id, supplied.is_error) == ("t1", True)
    assert "turn" in last.content


@pytest.mark.parametrize("number", [0, 1], ids=["in the source's place", "after the call"])
def test_redaction_deletes_both_events_and_the_record(store, tmp_path, number):
    imported(store, write(tmp_path / "garden.jsonl", SOURCE))
    results = [event for event in events_of(store, "garden") if isinstance(event, Observation)]
    assert [event.content for event in results] == [SECRET, SECRET]
    redact_event(store, "garden", results[number].id)
    assert SECRET not in repr(events_of(store, "garden"))
    assert SECRET.encode() not in bytes_of(store, "garden")


def call(call_id, place, uuid="c1"):
    block = {"type": "tool_use", "id": call_id, "name": "look", "input": {"place": place}}
    return line(3, uuid, "a1", "assistant", block, "m1")


NOTE = line(4, "n1", "r1", "user", text("Take your time."))
FORKS = {
    "garden": [ASKED, SAID, RESULT, call("t1", "shed"), ANSWER],
    "garden@3": [ASKED, SAID, RESULT, NOTE, call("t1", "barn"), ANSWER],
    "garden@3@4": [ASKED, SAID, RESULT, NOTE, call("t1", "loft"), ANSWER],
}
"""A history, its fork and a fork of the fork: they share the result, and each has its own call."""


def import_forks(store, folder):
    folder.mkdir(exist_ok=True)
    for name, lines in FORKS.items():
        done = imported(store, write(folder / f"{name}.jsonl", lines))
        assert done.conversation == name
        events_of(store, name)


def copy_in(store, name):
    (copy,) = (event.id for event in events_of(store, name) if PLACED_FROM in event.meta)
    return copy


def assert_deleted(store, names=FORKS):
    for name in names:
        assert SECRET not in repr(events_of(store, name))
        assert SECRET.encode() not in bytes_of(store, name)


@pytest.mark.parametrize("name", FORKS)
def test_redaction_of_a_copy_deletes_the_shared_result_and_all_copies(store, tmp_path, name):
    import_forks(store, tmp_path)
    receipt = redact_event(store, name, copy_in(store, name))
    assert receipt.conversation == name
    assert_deleted(store)


def test_redaction_of_a_result_deletes_the_copies_in_forks(store, tmp_path):
    import_forks(store, tmp_path)
    redact_event(store, "garden", 2)
    assert_deleted(store)


def search(store, where=None):
    maintenance = Histories(store).maintenance
    return maintenance.redact_matching(SECRET, where, reason="asked for", by="me")


def test_search_redacts_each_event_where_it_belongs(store, tmp_path):
    import_forks(store, tmp_path)
    report = search(store)
    assert report.stay == ()
    assert report.events == {"garden": (2, 3, 4), "garden@3": (4, 5), "garden@3@4": (4, 5)}
    assert_deleted(store)
    assert search(store).events == {}


def test_search_of_a_fork_reports_nothing_that_was_redacted(store, tmp_path):
    import_forks(store, tmp_path)
    Histories(store)["garden@3@4"].set_attributes(place="loft")
    assert search(store, {"place": "loft"}).stay == ()
    assert_deleted(store)


@pytest.mark.parametrize("name", ["garden@3", "garden@3@4"])
def test_redaction_deletes_the_copies_in_detached_forks(store, tmp_path, name):
    import_forks(store, tmp_path)
    Histories(store).erase("garden", reason="asked for", detach_forks=True)
    redact_event(store, name, copy_in(store, name))
    assert_deleted(store, ["garden@3", "garden@3@4"])


def test_redaction_deletes_the_copy_in_a_fork_that_is_detached_meanwhile(tmp_path):
    def detach(histories):
        histories.erase("garden", reason="asked for", detach_forks=True)

    def redact_copy(histories):
        return redact_event(histories.store, "garden@3", 5)

    def fill(histories):
        import_forks(histories.store, tmp_path)

    for histories, receipt in at_each_moment(fill, detach, redact_copy):
        assert 5 in receipt.event_ids
        assert_deleted(histories.store, ["garden@3", "garden@3@4"])


def test_a_damaged_event_of_a_fork_stops_no_redaction(tmp_path):
    path = tmp_path / "store.db"
    with open_with_imports(path) as store:
        import_forks(store, tmp_path)
        key = "SELECT key FROM conversations WHERE id = 'garden@3'"
        execute(path, f"UPDATE events SET body = x'00' WHERE conversation = ({key}) AND id = 3")
        receipt = redact_event(store, "garden", 2)
        assert any("'garden@3', event 3" in name for name in receipt.unconfirmed)
        (copy,) = store.events("garden@3", 5, 6)
        assert copy.redacted
        assert_deleted(store, ["garden"])


def test_redaction_leaves_another_early_result_of_a_fork(store, tmp_path):
    block = {"type": "tool_result", "tool_use_id": "t2"}
    parent = line(4, "r2", "c2", "user", {**block, "content": f"In short: {SECRET}"})
    fork = line(4, "r2", "c2", "user", {**block, "content": "There is none."})
    for name, other, place in (("garden", parent, "shed"), ("garden@3", fork, "barn")):
        calls = [call("t1", place), call("t2", place, "c2")]
        lines = [ASKED, SAID, RESULT, other, *calls, ANSWER]
        assert imported(store, write(tmp_path / name, lines)).conversation == name
        events_of(store, name)
    assert {"garden", "garden@3"} == search(store).events.keys()
    assert_deleted(store, ["garden", "garden@3"])
    left = [event for event in events_of(store, "garden@3") if isinstance(event, Observation)]
    assert [event.content for event in left].count("There is none.") == 2


def test_export_has_the_lines_as_they_came(store, tmp_path):
    path = write(tmp_path / "garden.jsonl", SOURCE)
    imported(store, path)
    events_of(store, "garden")
    assert bytes_of(store, "garden") == path.read_bytes()


ONE_OF_TWO = [
    ASKED,
    line(2, "c1", "u1", "assistant", use("t1"), "m1"),
    line(3, "c2", "c1", "assistant", use("t2"), "m1"),
    {**RESULT, "parentUuid": "c1"},
    ANSWER,
]
GOES_ON = line(6, "u2", "c1", "user", text("Are you there?"))
NEVER_ANSWERED = [
    ASKED,
    {**CALL, "parentUuid": "u1"},
    {**GOES_ON, "parentUuid": "c1"},
    {**ANSWER, "parentUuid": "u2"},
]
BEGAN_AGAIN = [*ONE_OF_TWO[:4], {**GOES_ON, "parentUuid": "u1"}, {**ANSWER, "parentUuid": "u2"}]
LINES = {
    "claude-code": (ONE_OF_TWO, ["look (t2)", "'no result of this call was recorded'"]),
    "pi": (PI, ["grind (t1)", "'No result provided'"]),
    "gemini-cli": (GEMINI, ["grind (t1)", "'no result of this call was recorded'"]),
    "qwen-code": (QWEN, ["grind (t1)", "'Tool execution result was not recorded"]),
    "copilot-cli": (COPILOT, ["(t1)", "'The execution of this tool, or a previous tool was inte"]),
}


@pytest.mark.parametrize("lines, words", LINES.values(), ids=LINES)
def test_supplied_result_is_a_finding(store, tmp_path, lines, words):
    path = tmp_path / "one.jsonl"
    imported(store, write(path, lines[:-1]))
    done = imported(store, write(path, lines))
    (finding,) = done.findings
    assert "the source has no result of the call" in finding.problem
    assert all(word in finding.problem for word in words)
    with new_store() as other:
        assert [found.problem for found in imported(other, path).findings] == [finding.problem]


@pytest.mark.parametrize("lines", [NEVER_ANSWERED, BEGAN_AGAIN, IN_ORDER])
def test_without_a_supplied_result_there_is_no_finding(store, tmp_path, lines):
    done = imported(store, write(tmp_path / "one.jsonl", lines))
    events = events_of(store, "garden")
    assert not [event for event in events if event.meta.get(PLACED_FROM, 0) is None]
    assert [*done.findings] == []


STATES = {
    "claude-code": ("garden", ONE_OF_TWO, "open_call", "answer"),
    "claude-code, all results are missing": ("garden", NEVER_ANSWERED, "open_call", "answer"),
    "pi": ("mill", PI, "open_call", "request"),
    "copilot-cli": ("mill", COPILOT, "open_call", "answer"),
    "gemini-cli": ("mill", GEMINI, "open_call", "request"),
    "qwen-code": ("mill", QWEN, "open_call", "request"),
}


@pytest.mark.parametrize("name, lines, before, state", STATES.values(), ids=STATES)
def test_nothing_waits_for_a_result_after_the_next_reply(
    store, tmp_path, name, lines, before, state
):
    path = tmp_path / "one.jsonl"
    imported(store, write(path, lines[:-1]))
    assert figures_of(store, name)["state"] == before
    imported(store, write(path, lines))
    assert figures_of(store, name)["state"] == state
    events_of(store, name)
    assert figures_of(store, name)["state"] == state
    assert [row.id for row in Histories(store).to_resume()] == []


def reply(number, parent, tokens, **fields):
    said = line(number, f"a{number}", parent, "assistant", text(f"{number}"), "m1")
    usage = {"input_tokens": tokens, "output_tokens": 1}
    return {**said, **fields, "message": {**said["message"], "usage": usage}}


ONE_ID = {
    "one reply in two lines": (set(), [reply(2, "u1", 5), reply(3, "a2", 5)], 6),
    "a result is between": (set(), [reply(2, "u1", 5), RESULT, reply(3, "r1", 5)], 6),
    "a request names each": (
        set(),
        [
            reply(2, "u1", 5, requestId="q1"),
            {**GOES_ON, "parentUuid": "a2"},
            reply(3, "u2", 7, requestId="q2"),
        ],
        14,
    ),
    "two replies have one id": (
        {"m1", "as one reply"},
        [reply(2, "u1", 5), {**GOES_ON, "parentUuid": "a2"}, reply(3, "u2", 7)],
        8,
    ),
}


@pytest.mark.parametrize("words, lines, tokens", ONE_ID.values(), ids=ONE_ID)
def test_only_replies_that_count_as_one_are_a_finding(store, tmp_path, words, lines, tokens):
    done = imported(store, write(tmp_path / "one.jsonl", [ASKED, *lines]))
    found = [finding.problem for finding in done.findings if "reply" in finding.problem]
    assert len(found) == bool(words)
    assert all(word in found[0] for word in words)
    spent = FiguresOfStore(store).totals(Where(only=["garden"])).spent
    assert spent.tokens == tokens


def gemini_without(call_id):
    """A turn of two calls, one without a result, that came again after the user had gone on."""
    calls = [
        {"id": each, "name": "grind", "args": {}, "status": "success", "result": {"text": each}}
        for each in ("t1", "t2")
    ]
    begun = [call if call["id"] != call_id else {**call, "result": None} for call in calls]
    return [
        *GEMINI[:2],
        message(1, "gemini", "", toolCalls=begun),
        GEMINI[-1],
        message(41, "gemini", "It turns."),
        message(1, "gemini", "", toolCalls=calls),
    ]


def test_result_that_comes_later_is_no_supplied_result(store, tmp_path):
    path = tmp_path / "mill.jsonl"
    for length in (5, 6):
        imported(store, write(path, gemini_without("t2")[:length]))
        messages = Histories(store)["mill"].view().to_messages()
        results = [message["content"] for message in messages if message["role"] == "tool"]
        assert results == ["t1", "t2" if length == 6 else "no result of this call was recorded"]
        others = [message["content"] for message in messages if message["role"] != "tool"]
        assert others[-1] == "It turns."


def test_qwen_code_goes_on_with_answered_calls(store, tmp_path):
    calls = [
        {"functionCall": {"id": call_id, "name": "grind", "args": {}}} for call_id in ("t1", "t2")
    ]
    both = part(1, "assistant", None)
    both["message"]["parts"] = calls
    response = {"id": "t1", "name": "grind", "response": {"output": "flour"}}
    lines = [
        part(0, "user", {"text": "Grind."}),
        both,
        part(2, "tool_result", {"functionResponse": response}),
        part(3, "user", {"text": "Faster."}, subtype="mid_turn_user_message"),
        part(4, "user", {"text": "Go on."}),
        part(5, "assistant", {"text": "I go on."}),
    ]
    imported(store, write(tmp_path / "mill.jsonl", lines))
    messages = Histories(store)["mill"].view().to_messages()
    results = [message["content"] for message in messages if message["role"] == "tool"]
    assert results[0] == "flour"
    assert results[1].startswith("Tool execution result was not recorded")


def test_line_of_qwen_code_without_its_parent_is_a_finding(store, tmp_path):
    lines = [*QWEN[:2], part(4, "user", {"text": "Go on."}), part(5, "user", {"text": "On."})]
    done = imported(store, write(tmp_path / "mill.jsonl", lines))
    found = [
        finding.problem for finding in done.findings if "names the parent e3" in finding.problem
    ]
    assert len(found) == 1
