"""What OpenHands V1 records mean, the strange ones too."""

from __future__ import annotations

import pytest

from foldlog._importing import import_source
from foldlog.eventstore import (
    Action,
    Annotation,
    CondensationAction,
    CondensationRequest,
    CondensationSummary,
    Message,
    Observation,
    SystemMessage,
    open_store,
    summary_id,
)
from foldlog.formats import decode, encode, open_sources
from foldlog.projections import View
from tests.foldlog.formats.reading import reader_of

V1 = "openhands-v1"


def text(said, **more):
    return {"type": "text", "text": said, **more}


def message(name, said="hi", source="user", **more):
    role = "assistant" if source == "agent" else "user"
    said = {"role": role, "content": [text(said, cache_prompt=False)]}
    return {"kind": "MessageEvent", "id": name, "source": source, "llm_message": said, **more}


def call(name, call_id="c1", **more):
    return {
        "kind": "ActionEvent",
        "id": name,
        "source": "agent",
        "thought": [text("look")],
        "thinking_blocks": [],
        "action": {"kind": "TerminalAction", "command": "ls"},
        "tool_name": "terminal",
        "tool_call_id": call_id,
        "tool_call": {"id": call_id, "name": "terminal", "arguments": '{"command": "ls"}', "origin": "completion"},
        "llm_response_id": "r1",
        **more,
    }


def answer(name, action_id, call_id="c1", **observation):
    return {
        "kind": "ObservationEvent",
        "id": name,
        "source": "environment",
        "tool_name": "terminal",
        "tool_call_id": call_id,
        "action_id": action_id,
        "observation": {"kind": "TerminalObservation", "content": [text("a b")], **observation},
    }


def condensation(name, *forgotten, **more):
    record = {"kind": "Condensation", "id": name, "source": "environment", "forgotten_event_ids": list(forgotten)}
    return {**record, "llm_response_id": "r9", **more}


read = reader_of(V1)


def shown(events):
    return [event.origin.id for event in events if event.shown]


def test_messages_and_the_system_prompt():
    system = {"kind": "SystemPromptEvent", "id": "s", "source": "agent", "system_prompt": text("You are"), "tools": [1]}
    prompt, asked, said = read({**system, "dynamic_context": text("Today")}, message("a"), message("b", source="agent"))
    assert isinstance(prompt, SystemMessage)
    assert (prompt.content, prompt.tools) == ((text("You are"), text("Today")), (1,))
    assert isinstance(asked, Message)
    assert (asked.content, asked.source, said.source) == ("hi", "user", "agent")


def test_a_message_says_what_was_added_to_it_too_and_shows_its_images():
    record = message("a", extended_content=[text("a skill")])
    record["llm_message"]["content"].append({"type": "image", "image_urls": ["data:1", "data:2"]})
    (event,) = read(record)
    images = [{"type": "image_url", "image_url": {"url": f"data:{n}"}} for n in (1, 2)]
    assert event.content == (text("hi"), *images, text("a skill"))


@pytest.mark.parametrize(
    "tool_call",
    [
        {"id": "c1", "name": "terminal", "arguments": '{"command": "ls"}', "origin": "completion"},
        {"id": "c1", "index": 1, "function": {"name": "terminal", "arguments": '{"command": "ls"}'}},
    ],
)
def test_an_action_holds_what_the_model_wrote_and_why(tool_call):
    thinking = [{"type": "thinking", "thinking": "hm", "signature": "s"}]
    (event,) = read(call("a", tool_call=tool_call, thinking_blocks=thinking))
    assert isinstance(event, Action)
    assert (event.tool, event.arguments, event.thought) == ("terminal", '{"command": "ls"}', "look")
    assert (event.call_id, event.response_id, event.thinking) == ("c1", "r1", tuple(thinking))


def test_an_action_whose_call_was_not_kept_has_the_arguments_that_were_understood():
    (event,) = read(call("a", tool_call=None))
    assert event.arguments == {"command": "ls"}


def test_three_kinds_answer_a_call():
    rejected = {"kind": "UserRejectObservation", "id": "r", "tool_call_id": "c2", "rejection_reason": "no"}
    failed = {"kind": "AgentErrorEvent", "id": "e", "tool_name": "t", "tool_call_id": "c3", "error": "boom"}
    calls = [call("a1"), call("a2", "c2"), call("a3", "c3")]
    ran, refused, error = read(*calls, answer("o", "a1"), {**rejected, "action_id": "a2"}, failed)[3:]
    assert [type(event) for event in (ran, refused, error)] == [Observation] * 3
    assert [event.cause for event in (ran, refused, error)] == [0, 1, 2]
    assert [event.content for event in (ran, refused, error)] == ["a b", "no", "boom"]
    assert [event.is_error for event in (ran, refused, error)] == [False, False, True]
    assert ran.extras == {"kind": "TerminalObservation"}
    _, ruled = read(call("a1"), {**answer("o", "a1"), "extended_content": [text("a rule of this file")]})
    assert ruled.content[-1] == text("a rule of this file"), "the SDK sends it with the result"


@pytest.mark.parametrize("reason", ["", " ", None])
def test_a_rejection_without_a_reason_says_that_the_action_was_not_done(reason):
    rejected = {"kind": "UserRejectObservation", "id": "r", "tool_call_id": "c1", "rejection_reason": reason}
    records = [call("a"), rejected]
    events = read(*records)
    (told,) = (m["content"] for m in View.from_events(events).to_messages() if m["role"] == "tool")
    assert told == "The action was rejected, and no reason was given."
    assert list(encode(events, "openhands-v1")) == records


FAILED = "[An error occurred during execution.]\n"
ENDED = {"exit_code": 1, "working_dir": "/w", "prefix": "", "suffix": "\n[exit code 1.]"}
WHERE = "\n[Current working directory: /w]\n[Command finished with exit code 1]"


@pytest.mark.parametrize(
    "observation, content",
    [
        ({"content": "said"}, "said"),
        ({"output": "ls: a", "exit_code": 0}, "ls: a"),
        ({"stdout": "out", "stderr": "err"}, "out"),
        ({"message": "done"}, "done"),
        ({"path": "/a", "new_content": "x"}, '{"path":"/a","new_content":"x"}'),
        ({"content": [text("a"), text("b")]}, (text("a"), text("b"))),
        ({"content": [1, 2]}, '{"content":[1,2]}'),
        ({"is_error": True, "content": []}, (text(FAILED),)),
        ({"is_error": True, "content": [text("a")]}, (text(FAILED), text("a"))),
        ({"output": "", "error": "no such file"}, "no such file"),
        ({"kind": "TerminalObservation", "content": [text("")], "metadata": ENDED}, f"\n[exit code 1.]{WHERE}"),
        (
            {
                "kind": "ExecuteBashObservation",
                "output": "a",
                "error": True,
                "metadata": {**ENDED, "prefix": "[more]\n"},
            },
            f"[There was an error during command execution.]\n[more]\na\n[exit code 1.]{WHERE}",
        ),
        ({"kind": "TerminalObservation", "content": [text("a")], "metadata": {"exit_code": -1}}, "a"),
        ({}, "{}"),
    ],
)
def test_what_an_observation_shows_whatever_its_tool_called_it(observation, content):
    record = {**answer("o", "?"), "observation": observation}
    (event,) = read(record)
    assert event.content == content
    assert "said" not in str(event.origin.rest)  # it is held once
    assert event.is_error is bool(observation.get("is_error") or observation.get("error"))


def test_an_answer_to_an_unknown_action_is_paired_by_its_call():
    events = read(call("a"), answer("o", "?"), answer("p", "a", "other"), answer("q", "?", "nobody"))
    assert [event.cause for event in events] == [None, 0, 0, None]


def tool_message(name, said="a b", call_id="c1"):
    return {
        "kind": "MessageEvent",
        "id": name,
        "source": "environment",
        "llm_message": {"role": "tool", "tool_call_id": call_id, "name": "terminal", "content": [text(said)]},
    }


def test_a_tools_message_beside_the_observation_is_kept_and_not_shown():
    events = read(message("a"), call("b"), answer("c", "b", content=[text("a b")]), tool_message("d"), message("e"))
    assert shown(events) == ["a", "b", "c", "e"]
    roles = [message["role"] for message in View.from_events(events).to_messages()]
    assert roles == ["user", "assistant", "tool", "user"]


def test_a_tools_message_without_an_observation_is_one():
    events = read(message("a"), call("b"), tool_message("d", "x y"))
    assert isinstance(events[2], Observation)
    assert (events[2].content, events[2].cause, events[2].call_id, events[2].tool) == ("x y", 1, "c1", "terminal")
    assert View.from_events(events).to_messages()[-1] == {"role": "tool", "tool_call_id": "c1", "content": "x y"}


def prompt(name, said, kind="SystemPromptEvent", **more):
    return {"kind": kind, "id": name, "source": "agent", "system_prompt": text(said), "tools": [], **more}


def update(name, said):
    return prompt(name, said, "SystemPromptUpdateEvent", reason="tools_and_system_prompt_changed")


def test_an_updated_system_prompt_takes_the_place_of_the_one_before():
    events = read(prompt("a", "old"), message("b"), update("c", "new"), message("d"), update("e", "newest"))
    assert [event.origin.id for event in View.from_events(events)] == ["b", "d", "e"]
    systems = [it["content"] for it in View.from_events(events).to_messages() if it["role"] == "system"]
    assert systems == ["newest"]
    assert View.from_events(events[:3]).events[0].content == "hi"
    first = read(update("a", "new"))
    assert [type(event) for event in first] == [SystemMessage]


def test_an_update_of_the_system_prompt_answers_no_request():
    request = {"kind": "CondensationRequest", "id": "r", "source": "environment"}
    events = read(prompt("a", "old"), request, update("c", "new"))
    view = View.from_events(events)
    assert view.unhandled_condensation_request
    assert [event.content for event in view] == ["old", "new"]


def test_condensations_after_an_update_forget_what_they_name():
    events = read(prompt("a", "old"), message("b"), update("c", "new"), message("d"), condensation("e", "b", "d"))
    assert [event.content for event in View.from_events(events)] == ["new"]
    added = CondensationAction(id=len(events), forgotten_event_ids=(3,), summary="s", summary_offset=0)
    assert list(encode([*events, added], V1))[-1]["forgotten_event_ids"] == ["c"]


def test_everything_else_is_bookkeeping_known_or_not():
    update = {"kind": "ConversationStateUpdateEvent", "id": "u", "source": "agent", "key": "k", "value": {"x": 1}}
    events = read(update, {"kind": "PauseEvent", "id": "p"}, {"kind": "NeverHeardOfEvent", "id": "n", "x": [1]})
    assert [type(event) for event in events] == [Annotation] * 3
    assert [event.name for event in events] == ["ConversationStateUpdateEvent", "PauseEvent", "NeverHeardOfEvent"]
    assert events[0].data == {"key": "k", "value": {"x": 1}}
    assert not any(event.shown for event in events)
    assert events[1].source == "user"


def test_a_time_with_a_zone_is_a_time():
    (event,) = read(message("a", timestamp="2025-11-27T14:19:12.914Z"))
    assert event.timestamp.isoformat() == "2025-11-27T14:19:12.914000+00:00"
    assert "timestamp" not in str(event.origin.rest)
    (event,) = read(message("a", timestamp="2025-11-27T14:19:12.914"))
    assert (event.timestamp, event.origin.time) == (None, "2025-11-27T14:19:12.914")


# -- condensations ----------------------------------------------------------------------------------------------------


def test_a_condensation_is_in_our_ids_and_may_forget_a_summary():
    events = read(
        *(message(name) for name in "abc"),
        condensation("k", "b", "a", summary="S", summary_offset=0),
        condensation("l", "k-summary", "c", "k", "later", "b"),
        message("later"),
    )
    first, second = (event for event in events if isinstance(event, CondensationAction))
    assert (first.forgotten_event_ids, first.summary, first.summary_offset) == ((1, 0), "S", 0)
    assert second.forgotten_event_ids == (summary_id(3), 2)  # b is forgotten already, later comes later
    assert "forgotten" not in str(first.origin.rest)
    assert events[-1].shown


def test_a_summary_that_an_older_sdk_showed_under_another_id_stays_and_the_import_says_so():
    records = [
        *(message(name) for name in "abc"),
        condensation("k", "a", summary="S", summary_offset=0),
        condensation("l", "b", "an id of no record", summary="T", summary_offset=0),
        condensation("m", "l-summary", "k-summary", "b", summary="U", summary_offset=0),
    ]
    found = []
    events = list(decode(records, V1, findings=found.append))
    assert [(one.place, "forgets an id of no record" in one.problem) for one in found] == [("record 4", True)]
    assert [event.content for event in View.from_events(events[:5]) if event.id < 0] == ["T", "S"]


def test_an_id_that_occurs_twice_is_forgotten_twice():
    events = read(message("a"), message("a"), message("b"), condensation("k", "a"))
    assert events[-1].forgotten_event_ids == (0, 1)


@pytest.mark.parametrize("half", [{"summary": "S"}, {"summary_offset": 0}, {"summary": 1, "summary_offset": 0}])
def test_half_a_summary_is_kept_and_not_applied(half):
    event = read(message("a"), condensation("k", "a", **half))[-1]
    assert (event.summary, event.summary_offset, event.forgotten_event_ids) == (None, None, (0,))


def test_requests_and_stored_summaries_are_what_they_are():
    request, summary = read({"kind": "CondensationRequest"}, {"kind": "CondensationSummaryEvent", "summary": "was"})
    assert isinstance(request, CondensationRequest)
    assert isinstance(summary, CondensationSummary)
    assert (request.shown, summary.shown, summary.content) == (False, True, "was")


# -- branches ---------------------------------------------------------------------------------------------------------


def seen(events):
    """The source ids of the View's events, and the texts of its summaries."""
    return [event.content if event.id < 0 else event.origin.id for event in View.from_events(events)]


def test_a_step_on_another_branch_comes_after_a_retraction_to_what_it_follows():
    events = read(
        message("a", parent_id=None),
        message("b", parent_id="a"),
        condensation("k", "a", parent_id="b", summary="of a", summary_offset=0),
        message("c", parent_id="a"),
        condensation("l", "b", "a", parent_id="c"),
        {"kind": "ConversationStateUpdateEvent", "id": "u", "parent_id": "b"},
        {"kind": "ConversationErrorEvent", "id": "e", "parent_id": "b"},
        message("d", parent_id="k"),
    )
    kinds = [type(event).__name__ for event in events]
    assert [at for at, kind in enumerate(kinds) if kind == "Retraction"] == [3, 8]
    assert [events[at].version for at in (3, 8)] == [1, 3]
    assert [seen(events[:at]) for at in (2, 3, 4, 5, 6, 8)] == [
        *(["a", "b"], ["of a", "b"], ["a"], ["a", "c"], ["c"], ["c"]),
    ]
    assert seen(events) == ["of a", "b", "d"]
    assert events[5].forgotten_event_ids == (0,)  # b is on the other branch


def test_a_request_on_a_branch_that_is_left_is_declined_and_waits_where_the_source_comes_back():
    request = {"kind": "CondensationRequest", "id": "q", "parent_id": "a"}
    events = read(message("a"), request, message("b", parent_id="a"), message("c", parent_id="q"))
    assert [type(event).__name__ for event in events[2:4]] == ["Retraction", "CondensationAction"]
    assert events[3].metadata["outcome"] == "declined"
    requested = [View.from_events(events[:at]).unhandled_condensation_request for at in range(1, len(events) + 1)]
    assert requested == [False, True, True, False, False, True, True]
    assert seen(events) == ["a", "c"]


def test_a_prompt_on_another_branch_is_not_replaced_and_a_tools_message_there_is_its_observation():
    prompt = {"kind": "SystemPromptUpdateEvent", "id": "p", "system_prompt": text("new"), "parent_id": "a"}
    first = {"kind": "SystemPromptEvent", "id": "s", "source": "agent", "system_prompt": text("old"), "tools": []}
    said = {"role": "tool", "tool_call_id": "c1", "content": [text("a b")]}
    told = {"kind": "MessageEvent", "id": "t", "source": "environment", "llm_message": said, "parent_id": "c"}
    log = [first, call("c", parent_id="s"), {**answer("o", "c"), "parent_id": "c"}, told]
    assert seen(read(*log)) == ["s", "c", "t"]
    events = read(first, message("a"), prompt, {**prompt, "id": "r"})
    assert seen(events) == ["a", "r"]


def test_a_log_that_goes_on_from_its_leaf_has_one_branch():
    update = {"kind": "ConversationStateUpdateEvent", "id": "u", "parent_id": "a"}
    events = read(message("a"), update, message("b", parent_id="a"), message("c"), message("d", parent_id="c"))
    assert shown(events) == ["a", "b", "c", "d"]


def test_a_new_root_leaves_everything_before_it():
    events = read(message("a"), message("b", parent_id="__root__"), message("c"))
    assert seen(events) == ["b", "c"]
    assert seen(read(message("a", parent_id="__root__"), message("b", parent_id="a"))) == ["a", "b"]


def test_a_parent_that_is_not_there_or_comes_later_is_a_root_and_there_is_no_circle():
    assert seen(read(message("a"), message("b", parent_id="gone"))) == ["b"]
    assert seen(read(message("a", parent_id="b"), message("b", parent_id="a"))) == ["a", "b"]


def test_an_id_that_occurs_twice_is_its_last_occurrence_for_those_who_follow():
    events = read(message("a"), message("b"), message("a", parent_id="a"), message("c", parent_id="a"))
    assert seen(events) == ["a", "a", "c"]


def test_a_log_that_grows_and_switches_its_branch_adds_its_tail(write, tmp_path):
    log = [message("a"), message("b"), message("c"), message("d", parent_id="a"), message("e", parent_id="c")]
    expected = ["a", "ab", "abc", "ad", "abce"]
    with open_store("memory:") as store:
        for count, view in enumerate(expected, 1):
            path = write("log.jsonl", log[:count])
            (source,) = open_sources([tmp_path / path])
            assert import_source(store, source, "s").added == (2 if count > 3 else 1)
            assert import_source(store, source, "s").added == 0
            assert "".join(seen(list(store.events("s")))) == view
            assert list(encode(store.events("s"), V1)) == log[:count]


def test_the_leaf_may_be_left_and_come_back_to(write, tmp_path):
    log = [message("a"), message("b", parent_id="a"), message("c", parent_id="a"), message("d", parent_id="b")]
    with open_store("memory:") as store:
        for count, leaf, view, added in ((3, "b", "ab", 5), (4, "d", "abd", 1)):
            for number, record in enumerate(log[:count]):
                write(f"s/events/event-{number:05}-{record['id']}.json", [record])
            write("s/base_state.json", [{"leaf_event_id": leaf}])
            (source,) = open_sources([tmp_path / "s"])
            assert import_source(store, source, "s").added == added
            assert "".join(seen(list(store.events("s")))) == view


# -- odd records ------------------------------------------------------------------------------------------------------


def test_sources_that_are_missing_follow_from_the_kind():
    events = read({"kind": "ActionEvent"}, {"kind": "ObservationEvent"}, {**message("a"), "source": "hook"})
    assert [event.source for event in events] == ["agent", "environment", "environment"]
    record = message("a", source="agent")
    del record["source"]
    assert read(record)[0].source == "agent"


def test_events_that_were_added_since_are_exported_with_ids_of_their_own():
    imported = read(message("a"), message("b"), condensation("k", "a", summary="S", summary_offset=0))
    added = [
        Action(id=3, tool="run", arguments={"command": "ls"}, call_id="c1", response_id="r1"),
        Observation(id=4, content="a", tool="run", call_id="c1", cause=3),
        CondensationAction(id=5, forgotten_event_ids=(1, summary_id(2)), summary="T", summary_offset=0),
    ]
    called, answered, condensed = list(encode([*imported, *added], V1))[3:]
    assert called["id"] == answered["action_id"] == "00000003-0000-4000-8000-000000000000"
    assert called["tool_call"]["arguments"] == '{"command":"ls"}'
    assert condensed["forgotten_event_ids"] == ["b", "k-summary"]
    again = list(decode([*encode([*imported, *added], V1)], V1))
    assert again[5].forgotten_event_ids == (1, summary_id(2))
