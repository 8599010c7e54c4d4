"""Records that a runtime hands over one by one."""

from __future__ import annotations

import foldlog


def asks(number):
    called = {"id": f"c{number}", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    return {"role": "assistant", "content": None, "tool_calls": [called]}


def answers(number, words):
    return {"role": "tool", "tool_call_id": f"c{number}", "content": words}


RECORDS = [{"role": "user", "content": "go"}, asks(0), answers(0, "one"), asks(1), answers(1, "two")]


def test_a_fork_goes_on_from_the_records_that_it_shares_and_no_later_ones():
    with foldlog.open("memory:") as histories:
        history = histories["whole"]
        for record in RECORDS:
            history.append_records([record], format="openai-chat")
        history.append_records([asks(1)], format="openai-chat")
        fork, own = history.fork(4, "fork"), [answers(1, "other"), {"role": "user", "content": "on"}]
        for record in own:
            fork.append_records([record], format="openai-chat")
        assert [*fork.export()] == [*RECORDS[:4], *own]
        assert [getattr(event, "cause", None) for event in fork.events()] == [None, None, 1, None, 3, None]
        assert [*history.export()] == [*RECORDS, asks(1)]


def test_records_of_a_conversation_whose_id_is_used_again_go_on_from_none_of_the_erased_one():
    with foldlog.open("memory:") as histories:
        histories["c1"].append_records(RECORDS[:2], format="openai-chat")
        histories.erase("c1", reason="asked for")
        again = histories.create("c1", {}, replace_erased=True)
        again.append_records([answers(0, "of the first one"), *RECORDS], format="openai-chat")
        assert [*again.export()] == [answers(0, "of the first one"), *RECORDS]
        assert [getattr(event, "cause", None) for event in list(again.events())[1:]] == [None, None, None, 3, None, 5]
