"""If a server repeats the ids of calls, events are forgotten and shown as if each call had its own
id.
"""

import json
from functools import cache

import pytest

from foldlog.projections import View
from tests.condensers.made import new_history
from tests.golden.rows import rows
from tests.how_many import some
from tests.projections.chat_rules import anthropic_problems, openai_problems
from tests.said import ids

CONDENSERS = rows("settings.json", "condensers that forget calls")
STEPS = 14

OWN = "{step}-{nth}"


def spelled(pattern, step, nth):
    """Return the id of the nth call of a step; of its reply, where n is 0."""
    if pattern is None:
        return None
    tool = ("read", "run", "run")[step % 3]
    return pattern.format(step=step, nth=nth, half=step % 2, third=step % 3, tool=tool)


@pytest.mark.parametrize(
    "calls, call_id, reply_id", some(rows("settings.json", "ids that servers repeat"), 5)
)
def test_repeated_ids_are_forgotten_like_unique_ids(calls, call_id, reply_id):
    for place, condenser in enumerate(CONDENSERS):
        expected = lengths_with_ids_of_their_own(place, calls)
        assert expected[-1] <= (STEPS + 1) * calls, "it forgets"
        assert lengths(condenser, calls, call_id, reply_id) == expected, condenser


def called(call_id, tool="run", arguments="{}"):
    return {"id": call_id, "function": {"name": tool, "arguments": arguments}}


def reply(*calls):
    return {"role": "assistant", "tool_calls": list(calls)}


def calls_and_results(messages):
    """Return the functions that messages call, and the results, by the ids of the calls."""
    functions = {
        call["id"]: call["function"]
        for message in messages
        for call in message.get("tool_calls", ())
    }
    results = [message for message in messages if message["role"] == "tool"]
    by_id = {result["tool_call_id"]: result["content"] for result in results}
    assert len(by_id) == len(results)
    return functions, by_id


@cache
def lengths_with_ids_of_their_own(place, calls):
    return lengths(CONDENSERS[place], calls, OWN, OWN)


def lengths(condenser, calls, call_id, reply_id):
    """Return how many events each step shows, in an agent's loop that goes on in a fork, and answers the
    last call first.
    """
    shown = []
    with new_history(condenser) as history:
        history.append({"role": "user", "content": "go"})
        for step in range(STEPS):
            shown.append(len(history.prepare()))
            tool_calls = [
                called(spelled(call_id, step, nth), arguments=json.dumps({"at": [step, nth]}))
                for nth in range(calls)
            ]
            choices = [{"message": reply(*tool_calls)}]
            history.append_reply({"choices": choices, "id": spelled(reply_id, step, 0)})
            if step == STEPS // 2:
                history = history.fork()
            for call in reversed(history.open_calls()):
                history.append_tool_result(call, json.dumps(call.arguments) + " word" * 50)
        if condenser["type"] == "conversation_window":
            history.request_condensation()
        view = history.prepare()
        messages = view.to_messages("openai")
        assert openai_problems(messages) == [] == anthropic_problems(view.to_messages("anthropic"))
        functions, results = calls_and_results(messages)
        for sent_id, content in results.items():
            assert content.startswith(functions[sent_id]["arguments"])
        assert View.from_events(history.events()).fit_positions == history.view().fit_positions, (
            "the events were read again"
        )
        return [*shown, len(view)]


@pytest.mark.parametrize("given_up", [0, 1])
def test_a_hidden_calls_result_goes_with_it(given_up):
    with new_history({"type": "recent_events", "max_events": 6, "keep_first": 0}) as history:
        history.append({"role": "user", "content": "go"})
        for tool, others in (("a", given_up), ("b", 0)):
            history.append_reply(reply(*(called(call_id, tool) for call_id in "kl"[: 1 + others])))
        for call in (call for call in history.open_calls() if call.call_id == "k"):
            history.append_tool_result(call, call.tool)
        history.append_reply({"role": "assistant", "content": "seen"})
        history.append({"role": "user", "content": "on"})
        functions, results = calls_and_results(history.prepare().to_messages("openai"))
        assert results == {sent_id: function["name"] for sent_id, function in functions.items()}
        assert len(results) == 2 - given_up


def test_results_answer_repeated_ids_in_order():
    with new_history() as history:
        history.append({"role": "user", "content": "go"})
        history.append_reply(reply(called("run"), called("run")))
        history.append({"role": "user", "content": "stop, and go again"})
        given_up = ids(history.open_calls())
        history.append_reply(reply(called("run"), called("run")))
        newest = ids(history.open_calls())[2:]
        answered = [history.append_tool_result("run", "done").event.cause for _ in range(2)]
        assert answered == newest
        assert ids(history.open_calls()) == given_up
