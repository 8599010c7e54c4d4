"""Each reply names the request that it answered, and the request can be made again."""

from dataclasses import replace

import pytest

import foldlog
from foldlog.errors import InvalidArgument
from foldlog.projections import View
from tests.said import replied, said

TOOL = {"type": "function", "function": {"name": "pay", "parameters": {"type": "object"}}}
DIALECTS = ["openai", "openai-reasoning", "litellm", "anthropic", "anthropic-cached", "responses"]
CONDENSERS = {
    "digest": {"type": "digest", "max_size": 20},
    "masking": {"type": "observation_masking", "attention_window": 3},
    "recent": {"type": "recent_events", "max_events": 12},
}


def reply(number, text="I pay."):
    function = {"name": "pay", "arguments": f'{{"euros": {number}}}'}
    call = {"id": f"c{number}", "type": "function", "function": function}
    message = {"role": "assistant", "content": text, "tool_calls": [call]}
    choice = {"index": 0, "finish_reason": "tool_calls", "message": message}
    return {"id": f"r{number}", "model": "m", "choices": [choice]}


def run_agent(history, dialect, steps):
    """Return the first event of each reply."""
    history.append([{"role": "system", "content": "You pay."}, said("pay all")])
    replies = []
    for number in range(steps):
        request = history.prepare().request(dialect, tools=[TOOL], model="m")
        replies.append(history.append_reply(reply(number), request=request)[0].id)
        history.append_tool_result(f"c{number}", f"paid {number} of {steps}")
    return replies


@pytest.mark.parametrize("condenser", CONDENSERS)
@pytest.mark.parametrize(
    "dialect, steps",
    [*((dialect, 15) for dialect in DIALECTS), pytest.param("openai", 60, marks=pytest.mark.long)],
)
def test_requests_are_made_again_byte_for_byte(dialect, steps, condenser, tmp_path):
    with foldlog.open(tmp_path / "a.db", condenser=CONDENSERS[condenser]) as histories:
        replies = run_agent(histories["c"], dialect, steps)
    with foldlog.open(tmp_path / "a.db") as histories:
        answers = {str(histories["c"].sent_request(reply_id)) for reply_id in replies}
    assert answers == {"the same bytes"}


def test_request_names_what_was_redacted(history):
    first, second, third = run_agent(history, "openai", 3)
    history.redact(second + 1, reason="a card number", by="ann")
    answers = {str(history.sent_request(reply_id)) for reply_id in (first, second)}
    assert answers == {"the same bytes"}
    assert history.sent_request(third).changes[0].endswith(" was redacted by ann: a card number")
    history.redact(second, reason="a card number")
    assert history.sent_request(second).same is None


def test_what_was_redacted_before_the_request_is_no_change_since(history):
    run_agent(history, "openai", 1)
    history.redact(history.view()[-1].id, reason="a card number", by="ann")
    request = history.prepare().request("openai", tools=[TOOL], model="m")
    second = history.append_reply(reply(1), request=request)[0].id
    history.append_tool_result("c1", "paid")
    request = replace(history.prepare().request("openai", tools=[TOOL]), rendering=0)
    third = history.append_reply(reply(2), request=request)[0].id
    assert str(history.sent_request(second)) == "the same bytes"
    assert history.sent_request(third).changes == ("rendered by foldlog's rules 0, and now by 1",)


@pytest.mark.parametrize("stored", [{"rendering": 1}, {"rendering": 1, "view": 0}, "pay", None])
def test_what_a_program_stored_as_a_request_is_no_record(history, stored):
    (recorded,) = history.append(replied("done", meta={"request": stored}))
    assert str(history.sent_request(recorded.id)) == "not recorded"


@pytest.mark.parametrize("changed", [{}, {"messages_digest": "of other bytes"}])
def test_another_rendering_is_named(history, changed):
    """It is also the reason if the messages differ."""
    history.append(said("pay"))
    request = replace(history.prepare().request(), rendering=0, **changed)
    (recorded,) = history.append_reply(reply(1), request=request)
    assert str(history.sent_request(recorded.id)) == "rendered by foldlog's rules 0, and now by 1"


def test_a_request_of_another_conversation_is_refused(histories, history):
    other = histories["d"]
    for asked in (history, other):
        asked.append(said("pay"))
    for view in (other.prepare(), other.view().then([said("x")])):
        with pytest.raises(InvalidArgument, match="a View of 'd', and this history is 'c1'"):
            history.append_reply(reply(1), request=view.request())
    assert history.version() == 1


def test_order_of_tool_keys_changes_the_request(history):
    history.append(said("pay"))
    view = history.prepare()
    one, other = ({"tools": [tool]} for tool in ({"a": 1, "b": 2}, {"b": 2, "a": 1}))
    assert view.request(**one).fingerprint != view.request(**other).fingerprint


def test_a_tool_with_half_of_a_surrogate_pair_has_a_fingerprint(history):
    history.append(said("pay"))
    view = history.prepare()
    one, other = (view.request(tools=[{"name": name}]) for name in ("\ud800", "\ud801"))
    assert one.fingerprint != other.fingerprint
    (recorded,) = history.append_reply(reply(1), request=one)
    assert str(history.sent_request(recorded.id)) == "the same bytes"


def test_fingerprint_stays_as_it_is_stored():
    view = View.from_events([said("pay")])
    assert view.request("openai", tools=[TOOL], model="m").fingerprint == {
        "view": 1,
        "dialect": "openai",
        "rendering": 1,
        "messages": "1b01a3eec19ab749391bd58dfa8d36fc",
        "beside": "d774e5afe84cdf34b50c686b755601fd",
    }


def test_without_a_request_nothing_is_recorded(history):
    history.append(said("pay"))
    (recorded,) = history.append_reply(reply(1))
    assert str(history.sent_request(recorded.id)) == "not recorded"
    assert history.documents() == {}
    with pytest.raises(InvalidArgument, match="event 0 of 'c1' is not the reply of a model"):
        history.sent_request(0)


def test_tools_are_stored_once(history):
    run_agent(history, "openai", 3)
    changes = [event for event in history.events() if type(event).__name__ == "DocumentChanges"]
    assert len(changes) == 1
    request = history.prepare().request("openai", tools=[{"name": "other"}])
    recorded = history.append_reply(reply(9), request=request)
    assert [entry.event.tool for entry in recorded] == ["pay"]
    assert history.sent_request(recorded[0].id).request.tools == [{"name": "other"}]
    history.redact(history.version() - 1, reason="x")
    assert "tools or parameters" in str(history.sent_request(recorded[0].id))


@pytest.mark.parametrize("name", ["api_key", "extra_headers", "aws_session_token", "Authorization"])
def test_secret_parameter_is_refused(history, name):
    history.append(said("hi"))
    with pytest.raises(InvalidArgument, match=f"{name}.* may hold a secret"):
        history.view().request(model="m", **{name: "a-1"})
    assert history.view().request(model="m", max_tokens=5, prompt_cache_key="c").parameters
