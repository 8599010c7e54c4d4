"""A recorded run answers for the model, and names the first request that differs."""

import json
import random
import re
import subprocess
import sys
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

import foldlog as api
from foldlog._testing import recorded as recorded_runs
from foldlog._testing.prompts import flat_tool
from foldlog._testing.run_file import read_run, run_of
from foldlog.condensers import condenser_from_config
from foldlog.errors import InvalidArgument, StoreRefused
from foldlog.testing import RunDiffers, ToolFailed, replay
from tests.beside import SAMPLES, needs_samples
from tests.foldlog.history.test_sent_requests import TOOL, reply
from tests.foldlog.testing.recorded_agent import replay_events
from tests.said import said

pytest_plugins = ["pytester"]
STEPS = 3
AWS_KEY = "AKIA" + "IOSFODNN7EXAMPLZ"
PLUGIN = ("-p", "foldlog.testing", "-p", "no:cacheprovider")
RUNS = [
    *(f"openai_chat/{path.name}" for path in sorted((SAMPLES / "openai_chat").glob("*.json"))),
    *(f"swe_agent_traj/{path.name}" for path in sorted((SAMPLES / "swe_agent_traj").glob("*"))),
    *(f"claude_code/{path.name}" for path in sorted((SAMPLES / "claude_code").glob("entire_*"))),
]


def run_agent(history, model, steps=STEPS, prompt="pay all"):
    history.append([{"role": "system", "content": "You pay."}, said(prompt)])
    for _ in range(steps):
        request = history.prepare().request("openai", tools=[TOOL], model="m")
        answer = model(request.messages, tools=request.tools, model="m")
        history.append_reply(answer, request=request)
        for call in history.open_calls():
            history.append_tool_result(call, f"paid {call.arguments['euros']} on 2026-11-27")


@pytest.fixture
def recorded(histories, tmp_path):
    """The file of a run of three calls."""
    replies = iter(range(STEPS))
    run_agent(histories["pay"], lambda messages, **_: reply(next(replies)))
    path = tmp_path / "pay.jsonl"
    run_of(histories["pay"]).write(path)
    return path


def test_the_same_program_gets_the_recorded_replies(histories, recorded):
    for number, source in enumerate([recorded, histories["pay"]]):
        with replay(source) as model:
            run_agent(histories[f"again-{number}"], model)
        again = histories[f"again-{number}"]
        assert again.view().to_messages() == histories["pay"].view().to_messages()
        assert model.notes == []


def test_run_with_image_and_sound(histories, tmp_path):
    image = {"type": "image_url", "image_url": {"url": b"GIF89a"}}
    sound = {"type": "input_audio", "input_audio": {"data": b"\x00\xff", "format": "wav"}}
    run_agent(histories["see"], lambda messages, **_: reply(0), 1, (image, sound))
    run_of(histories["see"]).write(tmp_path / "see.jsonl")
    with replay(tmp_path / "see.jsonl") as model:
        run_agent(histories["again"], model, 1, (image, sound))


CHANGES = {
    "a word": (
        lambda messages: messages[1].update(content="pay nothing"),
        r"call 1 of 3 \(event 2\) .*\n  message 1 \(user\) differs\n    pay \[all → nothing\]",
    ),
    "the system prompt": (
        lambda messages: messages[0].update(content="You lie."),
        r"the system prompt differs\n    You \[pay. → lie.\]",
    ),
    "a message less": (lambda messages: messages.pop(), "message 1 is missing: user: pay all"),
    "a message more": (
        lambda messages: messages.append({"role": "assistant", "content": "No."}),
        "message 2 is new: assistant: No.",
    ),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_prompt_is_named_in_words(change, histories, recorded):
    changed, words = CHANGES[change]

    def model(messages, **beside):
        changed(messages)
        return run(messages, **beside)

    run = replay(recorded)
    with pytest.raises(RunDiffers, match=words), run:
        run_agent(histories["again"], model)


@pytest.mark.parametrize(
    "tools, words",
    [
        (
            [{**TOOL, "function": {**TOOL["function"], "parameters": {"type": "array"}}}],
            "tool 1 .pay. differs\n.*object.* → .*array",
        ),
        ([TOOL, {"type": "function", "function": {"name": "lie"}}], "tool 2 is new: lie: "),
        ([], "tool 1 is missing: pay: "),
    ],
)
def test_a_changed_tool_is_named(tools, words, histories, recorded):
    run = replay(recorded)
    with pytest.raises(RunDiffers, match=words), run:
        run_agent(histories["again"], lambda messages, **_: run(messages, tools=tools, model="m"))


def with_schema(**fields):
    function = TOOL["function"]
    return [{**TOOL, "function": {**function, "parameters": {**function["parameters"], **fields}}}]


@pytest.mark.parametrize(
    "fields",
    [
        {"title": "pay"},
        {"$schema": "https://json-schema.org/draft/2020-12/schema"},
        {"additionalProperties": False},
    ],
)
def test_what_an_sdk_adds_to_a_tool_is_no_difference(fields, histories, recorded):
    tools = with_schema(**fields)
    with replay(recorded) as run:
        run_agent(histories["again"], lambda messages, **_: run(messages, tools=tools, model="m"))


def test_a_property_of_a_tool_may_be_called_title():
    schema = {"properties": {"title": {"type": "string", "title": "Title"}}, "title": "Book"}
    flat = flat_tool({"name": "book", "parameters": schema})
    assert flat["parameters"] == {"properties": {"title": {"type": "string"}}}


@pytest.mark.parametrize(
    "name, value",
    [
        ("temperature", 0.2),
        ("top_p", 0.5),
        ("tool_choice", "required"),
        ("stop", ["\n"]),
        ("response_format", {"type": "json_object"}),
        ("max_tokens", 10),
        ("reasoning_effort", "high"),
        ("seed", 0),
    ],
)
def test_a_new_parameter_is_a_difference(name, value, histories, recorded):
    def model(messages, **beside):
        return run(messages, **beside, **{name: value})

    run = replay(recorded)
    with pytest.raises(RunDiffers, match=f"{name} is .* and the run has no {name}"), run:
        run_agent(histories["again"], model)
    with replay(recorded, ignore=["parameters"]) as run:
        run_agent(histories["ignored"], model)


@pytest.mark.parametrize(
    "beside", [{"user": "u1"}, {"stream": False}, {"metadata": {"a": "b"}}, {"temperature": None}]
)
def test_the_user_and_the_transport_of_a_request_are_no_difference(beside, histories, recorded):
    with replay(recorded) as run:
        run_agent(histories["again"], lambda messages, **others: run(messages, **others, **beside))


def test_a_tool_that_is_no_longer_strict_is_a_difference(histories, tmp_path):
    strict = {**TOOL, "function": {**TOOL["function"], "strict": True}}

    def agent(history, model, tool):
        history.append([{"role": "system", "content": "You pay."}, said("pay")])
        request = history.prepare().request("openai", tools=[tool], model="m")
        answer = model(request.messages, tools=request.tools, model="m")
        history.append_reply(answer, request=request)

    agent(histories["pay"], lambda messages, **_: reply(0), strict)
    path = tmp_path / "pay.jsonl"
    run_of(histories["pay"]).write(path)
    with replay(path) as run:
        agent(histories["again"], run, strict)
    run = replay(path)
    with pytest.raises(RunDiffers, match=r"tool 1 .pay. differs"), run:
        agent(histories["changed"], run, TOOL)
    with replay(path, ignore=["tools"]) as run:
        agent(histories["ignored"], run, TOOL)


def test_a_runtime_that_knows_no_strict_tools_is_not_blamed(histories, recorded):
    run = read_run(recorded)  # the hooks of an SDK record no parameters
    run._replace(beside={1: {"tools": [TOOL]}}).write(recorded)

    def model(messages, **_):
        strict = {**TOOL, "function": {**TOOL["function"], "strict": True}}
        return run(messages, tools=[strict])

    with replay(recorded) as run:
        run_agent(histories["again"], model)


def test_the_name_of_a_message_is_compared(histories, tmp_path):
    named = {"role": "user", "name": "ann", "content": "pay"}
    reply_to_all = {"role": "assistant", "content": "Paid."}
    history = histories["chat"]
    history.append(api.from_openai([named, {**named, "name": "bob"}]))
    history.append_reply(reply_to_all)
    run_of(history).write(tmp_path / "a.jsonl")
    for source in (history, tmp_path / "a.jsonl"):
        with replay(source) as run:
            run([named, {**named, "name": "bob"}])
        with pytest.raises(RunDiffers, match="message 2 has the name 'eve', and the run has"):
            replay(source)([named, {**named, "name": "eve"}])


@pytest.fixture
def without_parameters(histories, tmp_path):
    """The file of a run that recorded the tools of its requests, and no parameters."""
    replies = iter(range(STEPS))
    history = histories["plain"]
    run_agent(history, lambda messages, **_: reply(next(replies)))
    path = tmp_path / "plain.jsonl"
    run = run_of(history)
    beside = {call: {"tools": fields["tools"]} for call, fields in run.beside.items()}
    run._replace(beside=beside).write(path)
    return path


def with_parameters(run, **parameters):
    """Return a model that asks the run with further parameters."""
    return lambda messages, **beside: run(messages, **{**beside, **parameters})


def test_parameters_that_a_run_lacks_are_noted(without_parameters, histories):
    lacks = "has not recorded the parameters of its requests"
    with pytest.warns(UserWarning, match=lacks), replay(without_parameters) as run:
        run_agent(histories["again"], with_parameters(run, temperature=0.2))


def test_parameters_that_a_run_lacks_are_added_on_request(without_parameters, histories):
    with replay(without_parameters, update=True) as run:
        run_agent(histories["updated"], with_parameters(run, temperature=0.2))
    with replay(without_parameters) as run:
        run_agent(histories["again"], with_parameters(run, temperature=0.2))
    run = replay(without_parameters)
    with pytest.raises(RunDiffers, match=r"temperature is None, and the run has 0\.2"), run:
        run_agent(histories["without"], run)
    run = replay(without_parameters)
    with pytest.raises(RunDiffers, match="model is 'n', and the run has 'm'"), run:
        run_agent(histories["another"], with_parameters(run, temperature=0.2, model="n"))


def test_arguments_in_another_order_are_no_difference(histories, tmp_path):
    def agent(history, model, turn):
        history.append([{"role": "system", "content": "You pay."}, said("pay")])
        for _ in range(2):
            history.append_reply(model(turn(history.prepare().to_messages())))
            for call in history.open_calls():
                history.append_tool_result(call, "paid")

    arguments = '{"to": {"city": "B", "street": "A"}, "euros": 5}'
    call = {"id": "c0", "type": "function", "function": {"name": "pay", "arguments": arguments}}
    replies = iter([
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "assistant", "content": "Paid."},
    ])  # fmt: skip
    agent(histories["pay"], lambda messages: next(replies), lambda messages: messages)
    path = tmp_path / "pay.jsonl"
    run_of(histories["pay"]).write(path)

    def reordered(value):
        def turn(messages):
            for message in messages:
                for each in message.get("tool_calls", ()):
                    each["function"]["arguments"] = value
            return messages

        return turn

    with replay(path) as run:
        other = '{"euros": 5, "to": {"street": "A", "city": "B"}}'
        agent(histories["again"], run, reordered(other))
    run = replay(path)
    other = '{"euros": 6, "to": {"street": "A", "city": "B"}}'
    with pytest.raises(RunDiffers, match=r"\[5, → 6,\]"), run:
        agent(histories["changed"], run, reordered(other))


def run_in_parallel(history, model, ended, raised=0):
    """``ended`` gets the open calls, and returns them in the order in which they end. The first
    result of turn 2 is ``raised``.
    """
    history.append([{"role": "system", "content": "You pay."}, said("pay all")])
    for turn in range(8):
        request = history.prepare().request("openai", tools=[TOOL], model="m")
        history.append_reply(model(request.messages, tools=[TOOL], model="m"), request=request)
        for call in ended(history.open_calls()):
            euros = call.arguments["euros"] + raised * (call.call_id == "c2")
            history.append_tool_result(call, f"turn {turn}: paid {euros} to /accounts/{euros}.txt")


def parallel_reply(number):
    answer = reply(number)
    calls = answer["choices"][0]["message"]["tool_calls"]
    for place in range(1, 4):
        calls += reply(10 * number + place)["choices"][0]["message"]["tool_calls"]
        calls[-1]["id"] = f"c{number}.{place}"
    return answer


@pytest.mark.parametrize("seed", range(6))
def test_parallel_results_may_come_in_another_order(seed):
    shuffled = random.Random(seed)
    with api.open("memory:", condenser={"type": "digest", "max_size": 20}) as histories:
        replies = iter(map(parallel_reply, range(8)))
        run_in_parallel(histories["pay"], lambda messages, **_: next(replies), list)
        assert histories["pay"].view().summary_event is not None
        with replay(histories["pay"]) as model:
            run_in_parallel(
                histories["again"], model, lambda calls: shuffled.sample([*calls], len(calls))
            )
        run = replay(histories["pay"])
        with pytest.raises(RunDiffers), run:
            run_in_parallel(histories["raised"], run, list, raised=1)


def run_at(history, model, time, paid="paid"):
    history.append(said("pay all"))
    for _ in range(8):
        request = history.prepare().request("openai", tools=[TOOL], model="m")
        history.append_reply(
            model(request.messages, tools=request.tools, model="m"), request=request
        )
        for call in history.open_calls():
            history.append_tool_result(call, f"at {time} {paid} " + "and so on " * 30)


@pytest.mark.parametrize("time", ["2027-01-01", "2027-01-01T10:00:00.123456+02:00"])
def test_a_digest_may_cut_a_line_elsewhere_for_an_ignored_time(time):
    with api.open("memory:", condenser={"type": "digest", "max_size": 8}) as histories:
        replies = iter(map(reply, range(8)))
        recorded_at = "2026-11-27T09:15:00Z"
        run_at(histories["pay"], lambda messages, **_: next(replies), recorded_at)
        assert histories["pay"].view().summary_event is not None
        with replay(histories["pay"], ignore=["times"]) as model:
            run_at(histories["again"], model, time)
        for ignored, paid in (((), "paid"), (["times"], "kept")):
            run = replay(histories["pay"], ignore=ignored)
            with pytest.raises(RunDiffers), run:
                run_at(histories[f"differs {paid}"], run, time, paid)


REPEAT = {"type": "digest", "max_size": 24, "keep_first": 1}


@pytest.mark.parametrize(
    "change, words",
    [
        (
            {"max_size": 16},
            "the run had condensed nothing yet: .* a lower limit than the run's"
            r" \(event \d+: View of \d+ events exceeded 24\)",
        ),
        ({"max_size": 40}, r"no digest, .* a higher limit .*events exceeded 24\), or another type"),
        ({"keep_first": 2}, r"a digest of \d+ events.*, and the run a digest of .* or keep_first"),
        ({"max_length": 500}, "the run knew"),
    ],
)
def test_a_changed_limit_of_a_condenser_is_named(change, words):
    with api.open("memory:", condenser=REPEAT) as histories:
        replies = iter(map(parallel_reply, range(8)))
        run_in_parallel(histories["pay"], lambda messages, **_: next(replies), list)
        with replay(histories["pay"]) as run:
            run_in_parallel(histories["again"], run, list)
        with api.open("memory:", condenser=REPEAT | change) as changed:
            run = replay(histories["pay"])
            with pytest.raises(RunDiffers, match=words) as raised, run:
                run_in_parallel(changed["pay"], run, list)
    assert ("condenser" in str(raised.value)) == ("max_length" not in change)


UNKNOWN_RESULT = {"role": "tool", "tool_call_id": "c9", "content": "paid 50"}
SECOND_RESULT = {"role": "tool", "tool_call_id": "c0", "content": "paid 50"}
UNANSWERED = {
    "role": "assistant",
    "tool_calls": [{"id": "c9", "function": {"name": "pay", "arguments": '{"euros": 50}'}}],
}


@pytest.mark.parametrize(
    "message, words",
    [
        (UNKNOWN_RESULT, "the result 'paid 50' answers no call"),
        (SECOND_RESULT, "the result 'paid 50' answers no call"),
        (UNANSWERED, 'the call pay({"euros": 50}) has no result'),
    ],
)
def test_a_call_or_result_that_is_alone_is_named(message, words, histories, recorded):
    asked = histories["pay"].at(5).to_messages("openai")
    run = replay(recorded)
    run(asked[:2], tools=[TOOL], model="m")
    with pytest.raises(RunDiffers, match=re.escape(words)):
        run([*asked, message], tools=[TOOL], model="m")
    program = histories["another program"]  # which sent the message when it was recorded, too
    prompt = [*asked, message, {"role": "user", "content": "go on"}]
    program.append(api.from_openai(prompt))
    program.append_reply({"role": "assistant", "content": "done"})
    version = program.version() - 1
    with replay(program) as run:
        run.calls = [call for call in run.calls if call.version == version]
        run(prompt)


def test_stopping_early_or_asking_more_fails(histories, recorded):
    with pytest.raises(RunDiffers, match="asked 2 of 3 recorded calls"), replay(recorded) as run:
        run_agent(histories["less"], run, STEPS - 1)
    run.close()  # a second time, as in a fixture
    with pytest.raises(RunDiffers, match="has 3 calls of the model"), replay(recorded) as run:
        run_agent(histories["more"], run, STEPS + 1)


def test_ids_times_and_system_can_be_ignored(histories, recorded):
    def model(messages, **beside):
        text = re.sub(r'"c(\d)', r'"x\1', json.dumps(messages)).replace("2026-11-27", "2027-01-01")
        messages = json.loads(text.replace("You pay.", "You work."))
        return run(messages, **beside)

    def ignoring(*ignored):
        return replay(recorded, ignore=ignored)

    with ignoring("ids", "times", "system") as run:
        run_agent(histories["again"], model)
    for number, ignored in enumerate([("ids", "times"), ("ids", "system"), ("times", "system")]):
        with pytest.raises(RunDiffers), ignoring(*ignored) as run:
            run_agent(histories[f"differs-{number}"], model)


def run_with_summary(history, model):
    run_agent(history, model, 2)
    call, result = (event.id for event in history.view()[2:4])
    summary = "c0 paid 0 euros"
    history.append(
        api.CondensationAction(
            forgotten_event_ids=[call, result], summary=summary, summary_offset=2
        )
    )
    request = history.view().request("openai", tools=[TOOL])
    history.append_reply(model(request.messages, tools=[TOOL], model="m"), request=request)


def test_ignored_id_may_stand_in_a_summary(histories):
    replies = iter([reply(0), reply(1), {"role": "assistant", "content": "Done."}])
    run_with_summary(histories["pay"], lambda messages, **_: next(replies))

    def model(messages, **beside):
        return run(json.loads(json.dumps(messages).replace("c0", "x0")), **beside)

    with replay(histories["pay"], ignore=["ids"]) as run:
        run_with_summary(histories["again"], model)
    with pytest.raises(RunDiffers), replay(histories["pay"], ignore=["times"]) as run:
        run_with_summary(histories["differs"], model)


def test_after_some_calls_another_model_answers(histories, recorded):
    def other_model(body):
        return {"role": "assistant", "content": f"{len(body['messages'])} messages"}

    with replay(recorded, until=2, then=other_model) as run:
        run_agent(histories["again"], run)
    assert histories["again"].tail(1)[0].content == "6 messages"
    with replay(recorded, until=0, then=other_model) as run:
        assert run([said("pay")])["choices"][0]["message"]["content"] == "1 messages"


def test_recorded_tool_answers_each_call_once(recorded):
    run = replay(recorded)
    pay = run.tool("pay")
    assert [pay(euros=2), pay(euros=0)] == ["paid 2 on 2026-11-27", "paid 0 on 2026-11-27"]
    with pytest.raises(RunDiffers, match=r"pay was called with .*2.*; the run still has .*1"):
        pay(euros=2)
    run.close(check=False)


def test_recorded_tool_fails_as_the_tool_did(histories):
    """For Anthropic's API, a prompt marks the result of a failed call."""

    def run_failing_agent(history, model, pay):
        history.append(said("pay all"))
        for _ in range(2):
            request = history.prepare().request("anthropic", tools=[TOOL])
            answer = model(request.messages, tools=request.tools, dialect="anthropic")
            history.append_reply(answer, request=request)
            for call in history.open_calls():
                try:
                    history.append_tool_result(call, pay(**call.arguments))
                except (ConnectionError, ToolFailed) as error:
                    history.append_tool_result(call, str(error), is_error=True)

    def model(messages, **_):
        euros = len(messages)
        called = {"type": "tool_use", "id": f"c{euros}", "name": "pay", "input": {"euros": euros}}
        return {"role": "assistant", "content": [called]}

    def pay(euros):
        if euros == 1:
            raise ConnectionError("the bank is closed")
        return f"paid {euros}"

    run_failing_agent(histories["pay"], model, pay)
    with replay(histories["pay"]) as run:
        run_failing_agent(histories["again"], run, run.tool("pay"))
    results = [e for e in histories["again"].events() if isinstance(e, api.Observation)]
    assert [(result.content, result.is_error) for result in results] == [
        ("the bank is closed", True),
        ("paid 3", False),
    ]


def test_content_of_a_failed_tool_is_kept(histories):
    parts = [{"type": "text", "text": "no"}, {"type": "text", "text": "money"}]
    histories["pay"].append(api.from_openai(reply(2)))
    called = api.Action(tool="pay", call_id="c9", arguments={"euros": 9})
    failed = api.Observation(tool="pay", call_id="c9", content=parts, is_error=True)
    histories["pay"].append([called, failed])
    with pytest.raises(ToolFailed) as raised:
        replay(histories["pay"]).tool("pay")(euros=9)
    assert raised.value.content == tuple(parts)
    assert str(raised.value) == "no\n\nmoney"


def test_recorded_tool_reads_arguments_as_text(histories):
    histories["pay"].append(api.from_openai(reply(2)))
    imported = api.Action(tool="pay", call_id="c9", arguments='{"euros": 9}')
    histories["pay"].append([imported, api.Observation(tool="pay", call_id="c9", content="paid")])
    assert replay(histories["pay"]).tool("pay")(euros=9) == "paid"


def test_redacted_arguments_reach_no_tool(histories):
    run_agent(histories["pay"], lambda *_, **__: reply(0), 1)
    histories["pay"].redact(2, reason="a card number")
    with pytest.raises(RunDiffers, match=r"call of pay in event 2 has \[redacted\] in place"):
        run_agent(histories["again"], replay(histories["pay"]), 1)


def test_the_facts_that_another_condenser_loses_are_listed(histories, recorded):
    digest = condenser_from_config({"type": "recent_events", "max_events": 4})
    with replay(recorded) as run:
        under = run.under(digest)
        run_agent(histories["again"], run)
    assert under.lost
    assert len(under.turns) == STEPS


def ask(url, path, body):
    sent = Request(url + path, json.dumps(body).encode(), {"content-type": "application/json"})
    with urlopen(sent) as answer:
        assert answer.status == 200
        return answer.read().decode()


BODIES = {
    "/v1/chat/completions": {"messages": [{"role": "user", "content": "pay all"}]},
    "/v1/responses": {"input": "pay all"},
    "/v1/messages": {
        "messages": [{"role": "user", "content": [{"type": "text", "text": "pay all"}]}]
    },
}
SYSTEM = {"/v1/responses": "instructions", "/v1/messages": "system"}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("path", BODIES)
def test_a_server_on_this_machine_speaks_three_apis(path, stream, recorded):
    body = {**BODIES[path], "tools": [TOOL], "model": "m", "stream": stream}
    if path in SYSTEM:
        body[SYSTEM[path]] = "You pay."
    else:
        body["messages"] = [{"role": "system", "content": "You pay."}, *body["messages"]]
    run = replay(recorded, until=1)
    with run:
        answer = ask(run.url, path, body)
    assert all(part in answer for part in ("I pay.", '"pay"', "c0", "euros"))
    assert answer.startswith(("data:", "event:")) == stream


def replies_of(dialect, end):
    """Replies of an API that ended for a reason, with the usage of a cache."""
    text = "Once upon"
    if dialect == "openai":
        choice = {"finish_reason": end, "message": {"role": "assistant", "content": text}}
        details = {"prompt_tokens_details": {"cached_tokens": 6}}
        usage = {"prompt_tokens": 9, "completion_tokens": 2, **details}
        return {"model": "m", "choices": [choice], "usage": usage}
    if dialect == "anthropic":
        usage = {"input_tokens": 1, "output_tokens": 2, "cache_read_input_tokens": 6}
        usage["cache_creation_input_tokens"] = 3
        content = [{"type": "text", "text": text}]
        message = {"type": "message", "role": "assistant", "content": content, "model": "m"}
        return {**message, "stop_reason": end, "usage": usage}
    message = {"type": "message", "role": "assistant"}
    item = {**message, "content": [{"type": "output_text", "text": text, "annotations": []}]}
    details = {
        "input_tokens_details": {"cached_tokens": 6},
        "output_tokens_details": {"reasoning_tokens": 1},
    }
    usage = {"input_tokens": 9, "output_tokens": 2, **details}
    return {"object": "response", "model": "m", "status": end, "output": [item], "usage": usage}


@pytest.mark.parametrize(
    "dialect, end",
    [
        *(("openai", end) for end in ("stop", "length", "content_filter")),
        *(("anthropic", end) for end in ("end_turn", "max_tokens", "pause_turn", "refusal")),
        *(("responses", end) for end in ("completed", "incomplete")),
    ],
)
def test_an_answer_has_the_recorded_end_and_usage(dialect, end, histories):
    recorded = histories["recorded"]
    again = histories["again"]
    recorded.append(said("tell"))
    recorded.append_reply(replies_of(dialect, end))
    with replay(recorded) as model:
        again.append(said("tell"))
        answer = model(again.view().to_messages(dialect), dialect=dialect)
        again.append_reply(answer)
    if dialect == "openai":
        assert answer["usage"]["prompt_tokens_details"] == {"cached_tokens": 6}
    of_recorded, of_again = (next(history.events(1)).meta for history in (recorded, again))
    names = ("finish_reason", "usage", "model")
    assert [of_again[name] for name in names] == [of_recorded[name] for name in names]


def test_another_api_is_told_of_a_cut_reply(histories):
    histories["cut"].append(said("tell"))
    histories["cut"].append_reply(replies_of("openai", "length"))
    body = {"input": "tell", "stream": True}
    with replay(histories["cut"]) as model:
        assert "event: response.incomplete" in ask(model.url, "/v1/responses", body)
    with replay(histories["cut"]) as model:
        body["messages"] = [{"role": "user", "content": "tell"}]
        assert '"stop_reason": "max_tokens"' in ask(model.url, "/v1/messages", body)


@pytest.mark.parametrize("dialect", ["openai", "responses"])
def test_arguments_that_are_no_json_are_answered_as_they_were(dialect, histories):
    histories["bad"].append(said("pay"))
    call = {"id": "c0", "type": "function", "function": {"name": "pay", "arguments": '{"euros": 5'}}
    histories["bad"].append_reply({"role": "assistant", "content": None, "tool_calls": [call]})
    with replay(histories["bad"]) as model:
        answer = model(histories["bad"].at(1).to_messages(dialect), dialect=dialect)
    [again] = api.from_openai(answer)
    assert again.arguments == '{"euros": 5'


def test_the_mark_of_a_cache_is_no_difference(recorded):
    text = {"type": "text", "text": "pay all", "cache_control": {"type": "ephemeral"}}
    body = {"messages": [{"role": "user", "content": [text]}], "system": "You pay.", "model": "m"}
    with replay(recorded, until=1) as run:
        assert "I pay." in ask(run.url, "/v1/messages", {**body, "tools": [TOOL]})


def test_server_refuses_a_different_request(recorded):
    run = replay(recorded)
    with pytest.raises(HTTPError) as refused:
        ask(run.url, "/chat/completions", {"messages": [{"role": "user", "content": "refund"}]})
    assert "[pay all → refund]" in json.load(refused.value)["error"]["message"]
    with pytest.raises(HTTPError, match="400"):
        urlopen(Request(f"{run.url}/v1/responses", b"no JSON"))
    with pytest.raises(RunDiffers, match="refund"):
        run.close()


@pytest.mark.parametrize(
    "body, problem",
    [
        ({"messages": ["hi"]}, "'messages' in the body .* list of objects, not ..hi.."),
        ({"messages": None}, "'messages' in the body .* not None"),
        ({"messages": [], "tools": 3}, "'tools' in the body .* not 3"),
    ],
)
def test_a_request_of_another_form_is_named(body, problem, recorded):
    with replay(recorded) as run:
        with pytest.raises(InvalidArgument, match=problem):
            run.answer(body, "openai")
        run.close(check=False)


TEST = """
import json
from tests.foldlog.testing.test_recorded_runs import run_agent
import foldlog

def test_pay(replay):
    run_agent(foldlog.open("memory:")["again"], replay("pay.jsonl"), prompt={prompt!r})
"""


@pytest.mark.parametrize("prompt, failed", [("pay all", 0), ("pay none", 1)])
def test_the_plugin_fails_a_test_once(prompt, failed, recorded, pytester):
    Path("pay.jsonl").write_bytes(recorded.read_bytes())
    pytester.makepyfile(TEST.format(prompt=prompt))
    result = pytester.runpytest_inprocess(*PLUGIN)
    result.assert_outcomes(passed=1 - failed, failed=failed)


ENDED = """
import pytest

@pytest.fixture
def run(replay):
    return replay("pay.jsonl")

@pytest.fixture
def broken(run):
    raise RuntimeError

def test_that_is_skipped(run):
    pytest.skip("not today")

def test_that_fails_in_words(run):
    pytest.fail("in words")

def test_of_a_broken_fixture(broken):
    pass

def test_that_asks_nothing(run):
    pass
"""


def test_skipped_or_failed_test_is_not_blamed(recorded, pytester):
    Path("pay.jsonl").write_bytes(recorded.read_bytes())
    pytester.makepyfile(ENDED)
    result = pytester.runpytest_inprocess(*PLUGIN)
    result.assert_outcomes(skipped=1, failed=1, passed=1, errors=2)
    errors = re.findall(r"^ERROR .*::(\w+)", result.stdout.str(), re.MULTILINE)
    assert errors == ["test_of_a_broken_fixture", "test_that_asks_nothing"]


def test_missing_tools_are_added_on_request(recorded, pytester):
    run = read_run(recorded)
    run._replace(beside={}).write(Path("pay.jsonl"))
    pytester.makepyfile(TEST.format(prompt="pay all"))
    # this process has imported the plugin
    plugin = (*PLUGIN, "-W", "always", "-W", "ignore::pytest.PytestAssertRewriteWarning")
    pytester.runpytest_inprocess(*plugin).assert_outcomes(passed=1, warnings=1)
    pytester.runpytest_inprocess(*plugin, "--foldlog-update").assert_outcomes(passed=1)
    noted = {"tools": [TOOL], "parameters": {"model": "m"}, "noted": ["model"]}
    assert read_run(Path("pay.jsonl")).beside == {1: noted}


IMPORT_PLUGIN = """
import sys, pytest
before = {*sys.modules}
import foldlog.testing
print(*{*sys.modules} - before)
"""


def test_the_plugin_imports_no_store_until_it_is_used():
    process = subprocess.run(
        [sys.executable, "-c", IMPORT_PLUGIN], capture_output=True, check=True, text=True
    )
    base = {"foldlog._base", "foldlog._base.lazy", "foldlog._base.version"}
    assert {*process.stdout.split()} == {"foldlog", "foldlog.testing", *base}


def test_run_file_is_read_as_written(recorded, tmp_path):
    lines = recorded.read_text().splitlines()
    assert json.loads(lines[0]) == {"foldlog_run": "pay", "version": 1}
    assert [json.loads(line).get("id") for line in lines[2:]] == [*range(len(lines) - 2)]
    read_run(recorded).write(tmp_path / "again.jsonl")
    assert (tmp_path / "again.jsonl").read_text() == recorded.read_text()
    with pytest.raises(InvalidArgument, match="is not a recorded run; write one with"):
        read_run(Path(__file__))
    with pytest.raises(InvalidArgument, match="there is no store"):
        replay(tmp_path / "none.db", "pay")


@pytest.mark.parametrize(
    "old, new, problem",
    [
        ('"version": 1', '"version": 7', "has version 7 of the form of runs"),
        ('{"id": 0', '{"id": 9', "does not have the events 0, 1, 2"),
        ('{"call": 1', '{"call": "one"', "is not a recorded run"),
        ('{"call": 1', '{"call": 1e999', "is not a recorded run"),
        ('{"call": 1', '"call"\n{"call": 1', "is not a recorded run"),
        ('{"call": 1', "[" * 100_000 + '\n{"call": 1', "is not a recorded run"),
        ('"tools": [', '"tools": [5, ', "has damaged tools or parameters of call 1"),
        ('"kind": "message"', '"kind": 5', "damaged event 1: its kind is not a text"),
        ('"source": "user"', '"source": "users"', "damaged event 1: Invalid enum value 'users'"),
    ],
)
def test_damaged_run_file_is_refused(old, new, problem, recorded):
    text = recorded.read_text()
    assert old in text
    recorded.write_text(text.replace(old, new))
    with pytest.raises(InvalidArgument, match=problem):
        replay(recorded)


@pytest.mark.parametrize(
    "options, problem",
    [
        ({"ignore": ["id"]}, "list any of ids, times, system"),
        ({"ignore": "ids"}, "list any of ids, times, system"),
        ({"until": -1}, "until is -1, and 'pay' has 3 calls"),
        ({"until": 4}, "until is 4, and 'pay' has 3 calls"),
    ],
)
def test_an_option_that_would_check_less_is_refused(options, problem, recorded):
    with pytest.raises(InvalidArgument, match=problem):
        replay(recorded, **options)


def replay_without_id(recorded, folder):
    text = recorded.read_text()
    assert text.startswith('{"foldlog_run": "pay"')
    recorded.write_text(text.replace('"pay"', '""', 1))
    replay(recorded)


def replay_wrong_id(recorded, folder):
    api.open(folder / "foldlog.db").close()
    replay(folder / "foldlog.db", 7)


REFUSED = {
    "too few calls": lambda recorded, folder: replay(recorded, until=4),
    "file without an id": replay_without_id,
    "id that is no text": replay_wrong_id,
}


@pytest.mark.parametrize("refused", REFUSED)
def test_a_run_that_is_refused_leaves_no_store_open(refused, recorded, tmp_path, monkeypatch):
    opened = []

    def open_noted(url):
        opened.append(api.open(url))
        return opened[-1]

    monkeypatch.setattr(recorded_runs, "open_histories", open_noted)
    with pytest.raises((InvalidArgument, TypeError)):
        REFUSED[refused](recorded, tmp_path)
    with pytest.raises(StoreRefused, match=r"(was|is) closed"):
        opened[0]["pay"].version()


def test_until_is_a_number_of_calls(recorded):
    with pytest.raises(TypeError, match="until must be a whole number, not True"):
        replay(recorded, until=True)


def test_missing_run_file_names_its_command(tmp_path):
    with pytest.raises(InvalidArgument, match="; write it with: foldlog export ID"):
        replay(tmp_path / "pay.jsonl")


def test_a_run_is_exported_without_its_secrets(foldlog, tmp_path):
    with api.open(tmp_path / "foldlog.db") as opened:
        opened["refund/1"].append(said(f"my key is {AWS_KEY} ok"))
        opened["refund/1"].append_reply({"role": "assistant", "content": "ghp_" + "a1B2" * 9})
    ran = foldlog("export refund/1 --as-test runs")
    assert "event 0: AWS Access Key replaced" in ran.err
    run = read_run(tmp_path / "runs" / "refund-1.jsonl")
    contents = [body["content"] for body in run.bodies]
    assert contents == ["my key is [secret: AWS Access Key] ok", "[secret: GitHub Token]"]
    assert foldlog("export --as-test runs").status == 2
    with replay(tmp_path / "runs" / "refund-1.jsonl") as again:
        again([{"role": "user", "content": f"my key is {AWS_KEY} ok"}])
    with pytest.raises(RunDiffers), replay(tmp_path / "runs" / "refund-1.jsonl") as again:
        again([{"role": "user", "content": f"my other key is {AWS_KEY} ok"}])


def test_export_replaces_no_other_run(foldlog, tmp_path):
    with api.open(tmp_path / "foldlog.db") as opened:
        for name in ("a/b", "a-b", "\u65e5", "\u4e2d"):
            opened[name].append_reply({"role": "assistant", "content": name})
    ran = [
        foldlog(f"export {name} --as-test runs")
        for name in ("a/b", "a/b", "a-b", "\u65e5", "\u4e2d")
    ]
    assert [command.status for command in ran] == [0, 0, 2, 0, 0]
    assert "a-b.jsonl has the run 'a/b'; name another folder" in ran[2].err


def test_passwords_are_not_exported(histories, tmp_path):
    secrets = {"password": "correct-horse", "url": "postgres://me:pa55word@host/db", AWS_KEY: 1}
    history = histories[f"run {AWS_KEY}"]
    history.append(said("log in with correct-horse"))
    about = {"metadata": {"api_key": "0123456789abcdef"}}
    request = history.prepare().request("openai", tools=[], **about)
    function = {"name": "log_in", "arguments": json.dumps(secrets)}
    calls = [{"id": "c1", "type": "function", "function": function}]
    history.append_reply({"role": "assistant", "tool_calls": calls}, request=request)
    history.append_tool_result("c1", "welcome")
    run, found = run_of(history).without_secrets()
    text = json.dumps([*run.lines()])
    for secret in ("correct-horse", "pa55word", AWS_KEY, "0123456789abcdef"):
        assert secret not in text
    assert run.bodies[0]["content"] == "log in with [secret: password]"
    assert "event 0: a password replaced" in found
    run.write(tmp_path / "run.jsonl")
    asked = {"role": "user", "content": "log in with correct-horse"}
    with replay(tmp_path / "run.jsonl") as again:
        log_in = again.tool("log_in")
        answer = again([asked], tools=[], **about)
        function = answer["choices"][0]["message"]["tool_calls"][0]["function"]
        assert log_in(**json.loads(function["arguments"])) == "welcome"
    with pytest.raises(RunDiffers), replay(tmp_path / "run.jsonl") as again:
        again([{**asked, "content": "log out with correct-horse"}], tools=[], **about)
    words = r"log_in in event 1 has \[secret: .*\] in place .* recorded.tool\('log_in'\)"
    with pytest.raises(RunDiffers, match=words), replay(tmp_path / "run.jsonl") as again:
        again([asked], tools=[], **about)


@pytest.mark.parametrize(
    "text, rest",
    [
        ('{"password": "short", "user": "me"}', '{"password": "[]", "user": "me"}'),
        ('{"access_token": "opaque-value"', '{"access_token": "[]"'),
        (r'{"a": "{\"clientSecret\": \"x\"}"}', r'{"a": "{\"clientSecret\": \"[]\"}"}'),
        (
            "{'token': 'opaque', 'next_page_token': 'p2'}",
            "{'token': '[]', 'next_page_token': 'p2'}",
        ),
        ("export DB_PASS=changeme && ls", "export DB_PASS=[] && ls"),
        ("PASS=12 KEY=a API_KEY=$KEY", "PASS=12 KEY=a API_KEY=$KEY"),
        ("curl -H 'Authorization: Bearer ab.cd-ef'", "curl -H 'Authorization: Bearer []'"),
        ("Basic authorization: none", "Basic authorization: none"),
        ("?user=me&password=letmein&page=2", "?user=me&password=[]&page=2"),
        ("/log-in?user=me&password=oak.tree&page=2", "/log-in?user=me&password=[]&page=2"),
        ("db_password=Oak7.tree", "db_password=[]"),
        ("api_key: 12345678", "api_key: []"),
        ("Passphrase: 'correct horse', twice", "Passphrase: '[]', twice"),
        ("passwd: 7Gates7", "passwd: []"),
        ('smtp_password = "tulip"', 'smtp_password = "[]"'),
        ("secret_key := q8w7e6", "secret_key := []"),
        ("PGPASSWORD=oak psql", "PGPASSWORD=[] psql"),
        ("mysqldump -h db -u me -poak5 shop", "mysqldump -h db -u me -p[] shop"),
        ("sshpass -p 'two words' ssh me@host", "sshpass -p '[]' ssh me@host"),
        ("curl -s -u me:oak https://host", "curl -s -u me:[] https://host"),
        ("tool login --db-password oak --fast", "tool login --db-password [] --fast"),
        ("redis-cli -h host -a oak ping", "redis-cli -h host -a [] ping"),
        ("docker login -u me -p oak", "docker login -u me -p []"),
        ("CREATE USER me IDENTIFIED BY 'oak'", "CREATE USER me IDENTIFIED BY '[]'"),
        ("ALTER ROLE me WITH PASSWORD 'oak'", "ALTER ROLE me WITH PASSWORD '[]'"),
        ("machine host login me password oak", "machine host login me password []"),
        ("<db.password>oak</db.password>", "<db.password>[]</db.password>"),
        ("Cookie: session=12ab; theme=dark", "Cookie: []"),
        ("amqp://me:p@ss@host/vhost", "amqp://me:[]@host/vhost"),
        ("the password is gate77", "the password is []"),
    ],
)
def test_passwords_in_texts_are_not_exported(text, rest, histories):
    history = histories["run"]
    history.append(said(text))
    [body] = run_of(history).without_secrets()[0].bodies
    assert body["content"] == rest.replace("[]", "[secret: password]")


@pytest.mark.parametrize(
    "text",
    [
        "connect(password=password, token=settings.token1)",
        "password = getpass.getpass()",
        "password = settings.database.password",
        "access_token: 12345678 tokens",
        "def log_in(user: str, password: str | None = None):",
        "if session_api_key:\n    return 200000",
        "the password is wrong",
        "mysql -u root -p shop",
        "tool --password --verbose",
        'curl -H "Authorization: $TOKEN" --user "$NAME:$SECRET"',
        "git clone https://oauth2:${GITLAB_TOKEN}@host/repo.git",
        "export DB_PASSWORD=$(cat file)",
        "16 tests: pass: 15, fail: 1",
        "session_token=None, cookie={}",
    ],
)
def test_what_only_names_a_password_is_exported(text, histories):
    histories["run"].append(said(text))
    run, found = run_of(histories["run"]).without_secrets()
    assert (run.bodies[0]["content"], found) == (text, [])


def test_a_long_password_of_a_text_is_replaced_everywhere(histories):
    histories["run"].append(said("password=gate77gate"))
    histories["run"].append(said("it said gate77gate"))
    run, found = run_of(histories["run"]).without_secrets()
    assert run.bodies[1]["content"] == "it said [secret: password]"
    assert found == ["event 0: a password replaced", "event 1: a password replaced"]


def test_many_replaced_secrets_are_compared(histories):
    # A search that tries every place for every secret does not end.
    history = histories["run"]
    history.append(said("[secret: password], " * 20 + "end"))
    history.append_reply({"role": "assistant", "content": "ok"})
    asked = "a, " * 60
    with replay(history) as again:
        again([{"role": "user", "content": f"{asked}end"}])
    with pytest.raises(RunDiffers), replay(history) as again:
        again([{"role": "user", "content": f"{asked}START"}])


def test_short_password_is_replaced_in_its_field_alone(histories, tmp_path):
    arguments = {"password": "agent", "password2": "agent", "pwd": "", "passcode": ["agent"]}
    function = {"name": "log_in", "arguments": json.dumps(arguments)}
    histories["run"].append(said("agent"))
    histories["run"].append_reply({"role": "assistant", "tool_calls": [{"function": function}]})
    run, found = run_of(histories["run"]).without_secrets()
    assert found == ["event 1: a password replaced"]
    run.write(tmp_path / "run.jsonl")
    with replay(tmp_path / "run.jsonl") as again:
        again.tool("log_in")
        answer = again([{"role": "user", "content": "agent"}])
    [call] = api.from_openai(answer)
    hidden = "[secret: password]"
    assert call.arguments == {
        "password": hidden,
        "password2": hidden,
        "pwd": "",
        "passcode": [hidden],
    }


def test_imported_passwords_are_not_exported(foldlog, tmp_path):
    function = {"name": "log_in", "arguments": '{"password": "correct-horse"}'}
    call = {"id": "c1", "type": "function", "function": function}
    result = {"role": "tool", "tool_call_id": "c1", "content": "welcome, correct-horse"}
    messages = [
        {"role": "user", "content": "log in"},
        {"role": "assistant", "tool_calls": [call]},
        result,
    ]
    messages.append({"role": "assistant", "content": "done"})
    (tmp_path / "log-in.json").write_text(json.dumps(messages))
    foldlog("import log-in.json")
    assert foldlog("export log-in --as-test runs").err.count("a password replaced") == 2
    path = tmp_path / "runs" / "log-in.jsonl"
    assert "correct-horse" not in path.read_text()
    with replay(path) as again:
        again.tool("log_in")
        again(messages[:1])
        again(messages[:3])


def with_changed_word(messages, tools, randomly):
    message = randomly.choice(messages)
    words = str(message["content"] or "").split(" ")
    words[randomly.randrange(len(words))] += " changed"
    message["content"] = " ".join(words)
    return messages, tools


def with_changed_order(messages, tools, randomly):
    return messages * 2 if len(messages) == 1 else messages[::-1], tools


def with_changed_schema(messages, tools, randomly):
    return messages, [{**TOOL, "function": {**TOOL["function"], "description": "Lies."}}]


@needs_samples
@pytest.mark.parametrize(
    "name",
    [RUNS[0], *(pytest.param(run, marks=pytest.mark.long) for run in RUNS[1:])] if RUNS else [""],
)
def test_changes_of_real_runs_are_named(name, histories, tmp_path):
    run = histories.import_(SAMPLES / name, findings=str)[0]
    path = tmp_path / "run.jsonl"
    run_of(run)._replace(beside={1: {"tools": [TOOL]}}).write(path)
    with replay(path) as model:
        replay_events(run, lambda _, asked: model(asked, tools=[TOOL]), histories["again"])
    calls = len(model.calls)
    for change in (with_changed_word, with_changed_order, with_changed_schema):
        randomly = random.Random(name + change.__name__)
        at = randomly.randint(1, calls)

        def changing(number, messages, at=at, change=change, randomly=randomly):
            tools = [TOOL]
            if number == at:
                messages, tools = change(messages, tools, randomly)
            return model(messages, tools=tools)

        with pytest.raises(RunDiffers, match=rf"call {at} of {calls} "), replay(path) as model:
            replay_events(run, changing, histories[change.__name__])
