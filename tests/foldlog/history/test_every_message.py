"""Messages as the clients of each provider write them: no way in loses a text, or a result of a
call. ``tests/golden/messages.json`` has the messages; each text in them is called ``said-N``.
"""

import json
import random
import re

import pytest
from msgspec.structs import replace
from pydantic import BaseModel, Field

from foldlog import Action, Annotation, Message, Observation, from_openai
from foldlog.errors import InvalidEvent
from foldlog.formats import decode, encode
from foldlog.projections.messages.turns import DIALECTS
from tests.foldlog.records import GOLDEN
from tests.how_many import some
from tests.projections.chat_rules import PROBLEMS

MESSAGES = json.loads((GOLDEN / "messages.json").read_text())
CHATS = MESSAGES["chats with calls"]
OF_THE_SERVER = MESSAGES["replies of Anthropic's server"]
"""Every block of a reply in the unions ContentBlock and BetaContentBlock of Anthropic's client, but
a compaction.
"""
OF_THE_USER = MESSAGES["blocks of the user"]
ITEMS = MESSAGES["items of OpenAI's responses"]
CLIENT_CALLS = MESSAGES["calls that a client answers"]
SERVER_CALLS = MESSAGES["calls of OpenAI's server"]
PAGE, FOUND = MESSAGES["blocks of Anthropic"]["user"][-2:]
ASKED = {"role": "user", "content": "How deep is the water?"}
USE = {"type": "tool_use", "id": "k1", "name": "f", "input": {}}


def texts_in(value):
    return set(re.findall(r"said-?\d+", json.dumps(value)))


def texts_of_events(history):
    return set(re.findall(r"said-?\d+", repr([*history.events()])))


def assert_sent(history, messages, odd_in=()):
    """Check that a model is sent every text of the messages, in each dialect, and that the prompt
    is well formed. In the dialects whose names begin with ``odd_in``, the messages themselves are
    not well formed, so the prompt need not be.
    """
    for dialect in DIALECTS:
        sent = history.view().to_messages(dialect)
        assert texts_in(messages) - texts_in(sent) == set(), dialect
        assert PROBLEMS[dialect](sent) == [] or dialect.startswith(odd_in), dialect


def append_each(history, messages):
    for message in messages:
        history.append(message)


def append_replies(history, messages):
    """Append the replies as such, and the result of each call as a program does that runs the
    tools.
    """
    for message in messages:
        if message["role"] == "assistant":
            history.append_reply(message)
        elif message["role"] == "user":
            history.append(message)
        else:
            names = message.get("name"), message.get("tool_name"), message.get("tool_call_id")
            calls = history.open_calls()
            named = [call for call in calls if call.tool in names or call.call_id in names]
            call = (named or calls)[0]
            history.append_tool_result(call.call_id, message["content"])


WAYS = {
    "append": append_each,
    "append of a list": lambda history, messages: history.append(messages),
    "append of events": lambda history, messages: history.append(from_openai(messages)),
    "append_reply": append_replies,
    "append_records": lambda history, messages: history.append_records(
        messages, format="openai-chat"
    ),
    "records by and by": lambda history, messages: [
        history.append_records([message], format="openai-chat") for message in messages
    ],
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("messages", CHATS.values(), ids=CHATS)
def test_each_call_of_a_chat_is_paired(history, messages, way):
    WAYS[way](history, [ASKED, *messages])
    assert history.open_calls() == ()
    assert_sent(history, messages)
    calls = [event for event in history.events() if isinstance(event, Action)]
    assert all(isinstance(call.response_id, str) for call in calls)
    written = list(history.export("openai-chat"))
    if "record" in way:
        assert written == [ASKED, *messages]
        return
    call_ids = [call["id"] for message in written for call in message.get("tool_calls", ())]
    answered = [message["tool_call_id"] for message in written if message["role"] == "tool"]
    assert sorted(call_ids) == sorted(answered)
    assert len(answered) == sum(message["role"] in ("tool", "function") for message in messages)


def append_unless_refused(history, messages):
    for message in messages:
        try:
            history.append(message)
        except InvalidEvent:
            assert message["role"] == "tool"


@pytest.mark.parametrize("case", MESSAGES["chats with results that name no call"])
@pytest.mark.parametrize(
    "way", ["append of a list", "append of events", "append_records", "refused"]
)
def test_result_without_an_id_is_paired(history, way, case):
    """In a case, ``pairs`` contains the number of each answered call with its result. ``refused``
    contains the numbers of the messages whose results belong to no open call.
    """
    append = {"refused": append_unless_refused, **WAYS}[way]
    messages = [ASKED, *case["messages"]]
    if way in ("append of a list", "append of events"):
        messages = [
            message for number, message in enumerate(messages, -1) if number not in case["refused"]
        ]
    append(history, messages)
    view = history.view()
    places = [place for place, event in enumerate(view) if isinstance(event, Action)]
    pairs = [
        [places.index(call), view[result].content] for call, result in view.units.answers.items()
    ]
    assert sorted(pairs) == case["pairs"]


def append_messages_of_anthropic(history, messages):
    about = {"id": "msg_1", "type": "message", "stop_reason": "tool_use"}
    for message in messages:
        if message["role"] == "assistant":
            history.append_reply({**about, **message})
        else:
            history.append(message)


def append_imported(history, messages):
    history.append(list(decode(messages, "anthropic-messages")))


WAYS_OF_BLOCKS = [
    append_each,
    append_imported,
    append_messages_of_anthropic,
    WAYS["append of a list"],
    WAYS["append of events"],
]


@pytest.mark.parametrize("way", WAYS_OF_BLOCKS)
@pytest.mark.parametrize("blocks", OF_THE_SERVER.values(), ids=OF_THE_SERVER)
def test_server_block_goes_back_unchanged(history, way, blocks):
    reply = [{"type": "text", "text": "said-1"}, *blocks, USE]
    result = {"type": "tool_result", "tool_use_id": "k1", "content": "said-4"}
    messages = [{"role": "assistant", "content": reply}, {"role": "user", "content": [result]}]
    way(history, [ASKED, *messages])
    # Other programs keep blocks of their own in this form, so an import does not send a single one.
    if way is append_imported and len(blocks) == 1:
        assert texts_in(messages) - texts_of_events(history) == set()
        assert blocks[0] not in history.view().to_messages("anthropic")[1]["content"]
        return
    assert history.view().to_messages("anthropic")[1]["content"] == reply
    assert list(encode(history.view().events, "anthropic-messages"))[1]["content"] == reply
    assert_sent(history, messages, odd_in="anthropic")


@pytest.mark.parametrize("way", WAYS_OF_BLOCKS)
@pytest.mark.parametrize("block", OF_THE_USER.values(), ids=OF_THE_USER)
def test_user_block_goes_back_unchanged(history, way, block):
    content = [FOUND, {"type": "text", "text": "said-4"}]
    result = {"type": "tool_result", "tool_use_id": "k1", "content": content}
    question = [{"type": "text", "text": "said-1"}, PAGE, block]
    messages = [
        {"role": "user", "content": question},
        {"role": "assistant", "content": [USE]},
        {"role": "user", "content": [result, *question]},
    ]
    way(history, messages)
    assert_sent(history, messages, odd_in="anthropic" if block["type"] == "tool_addition" else ())
    if way is append_imported and block["type"] not in ("search_result", "document"):
        return
    sent = history.view().to_messages("anthropic")
    assert [sent[0]["content"], sent[2]["content"]] == [question, [result, *question]]


class Fallback(BaseModel):
    type: str = "fallback"
    from_: dict[str, str] = Field(alias="from")


@pytest.mark.parametrize(
    "block",
    [{"type": "compaction", "content": "x"}, Fallback(**{"from": {"model": "a"}})],
    ids=repr,
)
def test_client_object_goes_back_unchanged(history, block):
    text = {"type": "text", "text": "said-1"}
    history.append([ASKED, {"role": "assistant", "content": [text, block]}])
    (_, sent) = history.view().to_messages("anthropic")[1]["content"]
    assert sent == (block if isinstance(block, dict) else block.model_dump(by_alias=True))


@pytest.mark.parametrize("way", ["events", "append_reply", "append_records"])
def test_items_of_openais_responses(history, way):
    if way == "events":
        history.append(from_openai(ITEMS))
    elif way == "append_records":
        history.append_records(ITEMS, format="openai-responses")
    else:
        history.append(from_openai(ITEMS[:1]))
        history.append_reply({"id": "resp_1", "output": ITEMS[1:4]})
        for item in ITEMS[4:]:
            history.append(from_openai(item))
    assert history.open_calls() == ()
    assert_sent(history, ITEMS)


def test_blocks_in_a_chat_change_no_role(history):
    thinking = {"type": "thinking", "thinking": "hm", "signature": "s"}
    text = {"type": "text", "text": "said-1"}
    image = {"type": "image", "source": {"type": "url", "url": "https://x"}}
    call = {"id": "k1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    history.append({"role": "system", "content": [text, PAGE]})
    history.append(ASKED)
    history.append({"role": "assistant", "content": [thinking, text], "tool_calls": [call]})
    history.append({"role": "tool", "tool_call_id": "k1", "content": [image, FOUND]})
    roles = [message["role"] for message in history.view().to_messages("litellm")]
    assert roles == ["system", "user", "assistant", "tool"]
    messages = history.view().to_messages("anthropic")
    assert [block["type"] for block in messages[1]["content"]] == ["thinking", "text", "tool_use"]
    assert messages[2]["content"][0]["content"] == [image, FOUND]


# -- appends and imports read a message in the same way


def drawn_message_of_a_chat(chance):
    role = chance.choice(["system", "developer", "user", "tool", *["assistant"] * 4])
    parts = MESSAGES["parts of a user in a chat" if role == "user" else "texts of a chat"]
    content = chance.choice(["said-16", chance.choices(parts, k=chance.randrange(2, 4))])
    if role == "assistant":
        return {"role": role, **drawn_fields(chance, content)}
    name = chance.choice([{}, {"name": "said-13"}])
    call_id = {"tool_call_id": "k1"} if role == "tool" else {}
    return {"role": role, "content": content, **call_id, **name}


def drawn_fields(chance, content):
    """Return some fields of messages of the assistant in OpenAI's client, in litellm's, and in
    answers of other servers.
    """
    drawn = {}
    if chance.random() < 0.5:
        drawn["content"] = content
    if isinstance(content, list) and chance.random() < 0.5:
        content.append({"type": "refusal", "refusal": "said-20"})
    if chance.random() < 0.5:
        drawn["tool_calls"] = chance.sample(MESSAGES["calls of a chat"], chance.randrange(1, 3))
    # If a message has both, the calls are read, and not the one call of the older form.
    if "tool_calls" in drawn and chance.random() < 0.2:
        drawn["function_call"] = {"name": "f", "arguments": "said-21"}
    fields = MESSAGES["fields of a reply in a chat"]
    return drawn | {name: fields[name] for name in chance.sample([*fields], chance.randrange(5))}


def drawn_message_of_anthropic(chance):
    role = chance.choice(["user", "assistant"])
    blocks = chance.choices(MESSAGES["blocks of Anthropic"][role], k=chance.randrange(1, 5))
    if role == "assistant" and chance.random() < 0.3:
        blocks += chance.choice([blocks for blocks in OF_THE_SERVER.values() if len(blocks) > 1])
    return {"role": role, "content": blocks}


def read(event):
    """Return what an event holds of its message, without the fields about its history and source."""
    meta = {key: value for key, value in event.meta.items() if key == "custom_tool"}
    event = replace(event, id=-1, origin=None, timestamp=None, cause=None, meta=meta)
    if isinstance(event, Action) and isinstance(event.arguments, str):
        event = replace(event, arguments=json.loads(event.arguments))
    return replace(event, response_id=None) if isinstance(event, Action) else event


@pytest.mark.parametrize(
    "format, drawn",
    [
        ("openai-chat", drawn_message_of_a_chat),
        ("anthropic-messages", drawn_message_of_anthropic),
    ],
)
def test_append_and_import_read_alike(format, drawn):
    for seed in some(range(1_000), 300):
        message = drawn(random.Random(seed))
        before = json.dumps(message)
        appended = from_openai(message)
        imported = [read(event) for event in decode([message], format)]
        is_empty = all(
            isinstance(event, Annotation) and event.name in ("reply", "message")
            for event in imported
        )
        assert list(map(read, appended)) == imported or (is_empty and len(appended) < 2)
        assert json.dumps(message) == before
        assert texts_in(message) - set(re.findall(r"said-?\d+", repr(appended))) == set()
        # A result of no call is in no View, so it is not written.
        if format == "openai-chat" and not is_empty and message["role"] != "tool":
            (written,) = encode([replace(event, id=n) for n, event in enumerate(appended)], format)
            # litellm writes the text of the thinking in both fields.
            if "thinking_blocks" in message:
                message.pop("reasoning_content", None)
            assert written == {"content": None, **message}


def test_call_with_its_output_in_one_reply_belongs_to_the_server():
    call = {"type": "shell_call", "call_id": "k1"}
    output = {"type": "shell_call_output", "call_id": "k1"}
    items = [call, output, ITEMS[1]]
    of_reply = from_openai({"id": "resp_1", "output": items})
    assert [event.data for event in of_reply[:2]] == [call, output]
    assert isinstance(of_reply[2], Message)
    assert [type(event) for event in from_openai(items)] == [Action, Observation, Message]


def test_missing_role_is_the_agent():
    (reply,) = from_openai({"choices": [{"message": {"content": "hi"}}]})
    assert (reply.source, reply.content) == ("agent", "hi")
    items = [{"type": "message", "role": role, "content": role} for role in ("user", "assistant")]
    speakers = {event.content: event.source for event in from_openai({"output": items})}
    assert speakers == {"user": "user", "assistant": "agent"}


def test_odd_field_of_a_custom_call_is_kept():
    call = {"type": "custom_tool_call", "call_id": "k1", "name": "f", "input": "x"}
    assert from_openai({**call, "arguments": "y"})[0].meta["item"] == {"arguments": "y"}


@pytest.mark.parametrize("output", ["", []])
def test_empty_output_is_empty(output):
    item = {"type": "shell_call_output", "call_id": "k1", "output": output, "max_output_length": 7}
    (event,) = from_openai(item)
    assert (event.content, event.meta["item"]["max_output_length"]) == ("", 7)


@pytest.mark.parametrize("call, answer", CLIENT_CALLS.values(), ids=CLIENT_CALLS)
def test_client_call_and_its_output_become_the_events_of_an_import(call, answer):
    for item in (call, answer):
        imported = decode([item], "openai-responses")
        assert list(map(read, from_openai(item))) == list(map(read, imported))


@pytest.mark.parametrize("call, answer", CLIENT_CALLS.values(), ids=CLIENT_CALLS)
@pytest.mark.parametrize("of_server", SERVER_CALLS, ids=lambda item: item["type"])
def test_client_call_beside_a_server_call_waits_for_its_output(history, call, answer, of_server):
    history.append(ASKED)
    history.append_reply({"id": "resp_1", "output": [of_server, call]})
    named = [event.name for event in history.events() if isinstance(event, Annotation)]
    assert named == [of_server["type"]]
    assert [action.call_id for action in history.open_calls()] == ["k1"]
    history.append(from_openai(answer))
    assert history.open_calls() == ()
    assert texts_in(of_server) <= texts_of_events(history)
    assert_sent(history, [call, answer])
