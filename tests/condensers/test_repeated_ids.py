"""Servers repeat the ids of calls: everything is forgotten and shown as with ids of their own."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest

import foldlog
from foldlog.projections import View
from tests.projections.chat_rules import anthropic_problems, openai_problems

CONDENSERS: tuple[dict[str, Any], ...] = (
    {"type": "digest", "max_size": 8},
    {"type": "digest", "max_tokens": 900},
    {"type": "amortized_forgetting", "max_size": 8, "keep_first": 1},
    {"type": "recent_events", "max_events": 8, "keep_first": 1},
    {"type": "conversation_window"},
)
STEPS = 14

Id = Callable[[int, int], str | None]
"""The id of the nth call of a step; of its reply, where n is 0."""


def own(step: int, nth: int) -> str:
    return f"{step}-{nth}"


@pytest.mark.parametrize(
    "calls, call_id, reply_id",
    [
        pytest.param(
            1, lambda step, nth: f"call_{step % 3}", lambda step, nth: None, id="in a round"
        ),
        pytest.param(
            1,
            lambda step, nth: f"call_{step % 3}",
            lambda step, nth: f"r{step % 2}",
            id="replies also",
        ),
        pytest.param(
            1,
            lambda step, nth: ("read", "run")[step * step % 3],
            lambda step, nth: None,
            id="names of tools",
        ),
        pytest.param(1, lambda step, nth: "call", lambda step, nth: "stub", id="one"),
        pytest.param(
            2, lambda step, nth: f"call_{nth}", lambda step, nth: None, id="in each reply"
        ),
        pytest.param(2, lambda step, nth: f"call_{step % 2}", own, id="one in a reply"),
        pytest.param(2, own, lambda step, nth: f"r{step % 3}", id="replies only"),
    ],
)
def test_all_is_forgotten_and_sent_as_with_ids_of_their_own(
    calls: int, call_id: Id, reply_id: Id
) -> None:
    for place, condenser in enumerate(CONDENSERS):
        expected = lengths_with_ids_of_their_own(place, calls)
        assert expected[-1] <= (STEPS + 1) * calls, "it forgets"
        assert lengths(condenser, calls, call_id, reply_id) == expected, condenser


@cache
def lengths_with_ids_of_their_own(place: int, calls: int) -> list[int]:
    return lengths(CONDENSERS[place], calls, own, own)


def lengths(condenser: dict[str, Any], calls: int, call_id: Id, reply_id: Id) -> list[int]:
    """How many events each step shows, in an agent's loop that goes on in a fork, and answers the
    last call first.
    """
    found = []
    with foldlog.open("memory:", condenser=condenser) as histories:
        history = histories["c"]
        history.append({"role": "user", "content": "go"})
        for step in range(STEPS):
            found.append(len(history.prepare()))
            called = [
                {"name": "run", "arguments": json.dumps({"at": [step, nth]})}
                for nth in range(calls)
            ]
            made = [{"id": call_id(step, nth), "function": call} for nth, call in enumerate(called)]
            reply = {
                "choices": [{"message": {"role": "assistant", "tool_calls": made}}],
                "id": reply_id(step, 0),
            }
            history.append_reply(reply)
            if step == STEPS // 2:
                history = history.fork()
            for call in reversed(history.open_calls()):
                history.append_tool_result(call, json.dumps(call.arguments) + " word" * 50)
        if condenser["type"] == "conversation_window":
            history.request_condensation()
        view = history.prepare()
        messages = view.to_messages("openai")
        assert openai_problems(messages) == [] == anthropic_problems(view.to_messages("anthropic"))
        of_calls = {
            call["id"]: call["function"]["arguments"]
            for each in messages
            for call in each.get("tool_calls", ())
        }
        results = [each for each in messages if each["role"] == "tool"]
        assert all(each["content"].startswith(of_calls[each["tool_call_id"]]) for each in results)
        assert View.from_events(history.events()).fit_positions == history.view().fit_positions, (
            "read anew"
        )
        return [*found, len(view)]


@pytest.mark.parametrize("given_up", [0, 1])
def test_the_result_of_a_call_that_is_hidden_is_not_that_of_another_call(given_up: int) -> None:
    with foldlog.open(
        "memory:", condenser={"type": "recent_events", "max_events": 6, "keep_first": 0}
    ) as histories:
        history = histories["c"]
        history.append({"role": "user", "content": "go"})
        for tool, others in (("a", given_up), ("b", 0)):
            made = [
                {"id": call_id, "function": {"name": tool, "arguments": "{}"}}
                for call_id in ("k", "l")[: 1 + others]
            ]
            history.append_reply({"role": "assistant", "tool_calls": made})
        for call in (call for call in history.open_calls() if call.call_id == "k"):
            history.append_tool_result(call, call.tool)
        history.append_reply({"role": "assistant", "content": "seen"})
        history.append({"role": "user", "content": "on"})
        messages = history.prepare().to_messages("openai")
        called = {
            call["id"]: call["function"]["name"]
            for each in messages
            for call in each.get("tool_calls", ())
        }
        results = {
            each["tool_call_id"]: each["content"] for each in messages if each["role"] == "tool"
        }
        assert results == called
        assert len(results) == 2 - given_up


def test_results_by_a_repeated_id_are_those_of_the_calls_in_order() -> None:
    with foldlog.open("memory:") as histories:
        history = histories["c"]
        history.append({"role": "user", "content": "go"})
        given_up: list[int] = []
        for step in range(2):
            made = [{"id": "run", "function": {"name": "run", "arguments": "{}"}}] * 2
            history.append_reply({"role": "assistant", "tool_calls": made})
            asked = [call.id for call in history.open_calls()[-2:]]
            if step:
                answered = [history.append_tool_result("run", "done").event.cause for _ in made]
                assert answered == asked, "the first reply was given up"
                assert [call.id for call in history.open_calls()] == given_up
            given_up = asked
            history.append({"role": "user", "content": "stop"})
