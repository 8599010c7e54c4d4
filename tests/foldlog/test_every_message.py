"""Messages as the clients of each provider write them: no way in loses a text, or a result of a
call.
"""

from __future__ import annotations

import json
import random
import re
from typing import Any

import pytest
from msgspec.structs import replace
from pydantic import BaseModel, Field

import foldlog
from foldlog import Action, Annotation, from_openai
from foldlog.errors import InvalidEvent
from foldlog.formats import decode, encode
from foldlog.projections.messages import DIALECTS
from tests.how_many import some
from tests.projections.chat_rules import PROBLEMS

ASKED = {"role": "user", "content": "How deep is the water?"}


def chat(*calls: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": "said-1", "tool_calls": list(calls), **more}


def function(name: str, **more: Any) -> dict[str, Any]:
    return {"function": {"name": name, "arguments": '{"at": "said-2"}'}, **more}


CHATS = {
    "chat": [
        chat(function("f", id="k1", type="function"), function("g", id="k2", type="function")),
        {"role": "tool", "tool_call_id": "k2", "content": "said-3"},
        {"role": "tool", "tool_call_id": "k1", "content": [{"type": "text", "text": "said-4"}]},
    ],
    "functions": [
        {"role": "assistant", "content": "said-1", "function_call": function("f")["function"]},
        {"role": "function", "name": "f", "content": "said-3"},
        {"role": "assistant", "content": None, "function_call": function("f")["function"]},
        {"role": "function", "name": "f", "content": "said-4"},
    ],
    "ollama": [
        chat(
            {"function": {"name": "f", "arguments": {"at": "said-2"}}}, function("g"), function("f")
        ),
        {"role": "tool", "tool_name": "g", "content": "said-3"},
        {"role": "tool", "tool_name": "f", "content": "said-4"},
        {"role": "tool", "tool_name": "f", "content": "said-5"},
    ],
    "no names": [
        chat(function("f"), function("g"), function("f")),
        {"role": "tool", "content": "said-3"},
        {"role": "tool", "content": "said-4"},
        {"role": "tool", "content": "said-5"},
    ],
}


def results(messages: list[Any]) -> int:
    return sum(message.get("role") in ("tool", "function") for message in messages)


def append_each(history: Any, messages: list[Any]) -> None:
    for message in messages:
        history.append(message)


def append_reply(history: Any, messages: list[Any]) -> None:
    """Append the replies as such, and the result of each call as a program does that runs the
    tools.
    """
    for message in messages:
        if message["role"] == "assistant":
            history.append_reply(message)
        elif results([message]):
            names = message.get("name"), message.get("tool_name"), message.get("tool_call_id")
            calls = history.open_calls()
            call = next(
                (each for each in calls if each.tool in names or each.call_id in names), calls[0]
            )
            history.append_tool_result(call.call_id, message["content"])
        else:
            history.append(message)


WAYS = {
    "append": append_each,
    "append of a list": lambda history, messages: history.append(messages),
    "append of events": lambda history, messages: history.append(from_openai(messages)),
    "append_reply": append_reply,
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
    events = list(history.events())
    assert history.open_calls() == ()
    said = {
        each
        for each in ("said-1", "said-2", "said-3", "said-4", "said-5")
        if each in json.dumps(messages)
    }
    for dialect in DIALECTS:
        told = history.view().to_messages(dialect)
        assert (
            PROBLEMS[dialect](told),
            {each for each in said if each not in json.dumps(told)},
        ) == ([], set())
    assert all(isinstance(event.response_id, str) for event in events if isinstance(event, Action))
    written = list(history.export("openai-chat"))
    if "record" in way:
        assert written == [ASKED, *messages]
        return
    calls = [call["id"] for message in written for call in message.get("tool_calls", ())]
    assert sorted(calls) == sorted(
        message["tool_call_id"] for message in written if message["role"] == "tool"
    )
    assert len(calls) == results(messages)


def drawn(seed: int) -> tuple[list[Any], list[Any], list[tuple[int, str]]]:
    """Return the messages of a chat; those with a result of a call that is open; and each pair: the
    place of the call among all calls, and its result.
    """
    draw, calls = random.Random(seed), list[tuple[str, str | None]]()
    messages, taken, pairs, reply, given = (
        [ASKED],
        [ASKED],
        list[tuple[int, str]](),
        list[int](),
        set[int](),
    )
    for n in range(draw.randrange(4, 16)):
        said = f"said-{n}"
        if draw.random() < 0.35:
            reply, had = [], len(calls)
            for place in range(had, had + draw.choice([1, 1, 2, 3])):
                calls.append((draw.choice("fg"), draw.choice([None, None, f"k{place}"])))
                reply.append(place)
            made = [
                function(tool, **({} if call_id is None else {"id": call_id}))
                for tool, call_id in calls[had:]
            ]
            messages.append(chat(*made))
            taken.append(messages[-1])
        elif draw.random() < 0.2:
            messages.append({"role": "user", "content": said})
            taken.append(messages[-1])
        elif calls:
            named: dict[str, str] = draw.choice(
                [{}, {"name": draw.choice("fg")}, {"tool_name": draw.choice("fg")}]
            )
            open_calls = [place for place in range(len(calls)) if place not in given]
            fit = [
                place
                for place in open_calls
                if place in reply and calls[place][0] in named.values()
            ]
            if not named:
                fit = [place for place in open_calls if place in reply and calls[place][1] is None]
            with_ids = [place for place in open_calls if calls[place][1] is not None]
            if with_ids and draw.random() < 0.2:
                fit = [draw.choice(with_ids)]  # of any reply
                named = {"tool_call_id": str(calls[fit[0]][1])}
            messages.append({"role": "tool", "content": said, **named})
            if fit:
                given.add(fit[0])
                pairs.append((fit[0], said))
                taken.append(messages[-1])
    return messages, taken, sorted(pairs)


def append_taken(history: Any, messages: list[Any]) -> None:
    """Append each message, unless it is refused."""
    for message in messages:
        try:
            history.append(message)
        except InvalidEvent:
            if message["role"] != "tool":
                raise


@pytest.mark.parametrize(
    "way", ["append of a list", "append of events", "append_records", "refused"]
)
def test_a_result_without_an_id_is_of_the_newest_reply_in_every_way(way):
    append = {"refused": append_taken, **WAYS}[way]
    with foldlog.open("memory:") as histories:
        for seed in some(range(500), 40):
            messages, taken, pairs = drawn(seed)
            history = histories[f"c{seed}"]
            append(history, messages if way in ("append_records", "refused") else taken)
            view = history.view()
            places = [place for place, event in enumerate(view) if isinstance(event, Action)]
            told = sorted(
                (places.index(call), view[result].content)
                for call, result in view.units.answers.items()
            )
            assert (seed, told) == (seed, pairs)


def served(
    kind: str, content: Any, call: str = "server_tool_use", **more: Any
) -> list[dict[str, Any]]:
    """Return a call that Anthropic's server answered itself, and its result."""
    made = {"type": call, "id": "srvtoolu_1", "name": kind, "input": {"at": "deep"}}
    of_mcp = {"server_name": "tides"} if call == "mcp_tool_use" else {}
    return [
        {**made, **of_mcp},
        {"type": f"{kind}_tool_result", "tool_use_id": "srvtoolu_1", "content": content, **more},
    ]


PAGE = {
    "type": "document",
    "title": "said-2",
    "source": {"type": "text", "media_type": "text/plain", "data": "said-3"},
}
RAN = {"stdout": "said-2", "stderr": "said-3", "return_code": 0, "content": []}
TEXT = {"type": "text", "text": "said-2"}
FOUND = {
    "type": "search_result",
    "source": "https://x",
    "title": "said-2",
    "content": [{"type": "text", "text": "said-3"}],
}
OF_THE_SERVER = {
    "web_search": served(
        "web_search", [{"type": "web_search_result", "title": "said-2", "encrypted_content": "x"}]
    ),
    "web_fetch": served(
        "web_fetch", {"type": "web_fetch_result", "url": "https://x", "content": PAGE}
    ),
    "code": served("code_execution", {"type": "code_execution_result", **RAN}),
    "bash": served("bash_code_execution", {"type": "bash_code_execution_result", **RAN}),
    "editor": served(
        "text_editor_code_execution",
        {"type": "text_editor_code_execution_view_result", "content": "said-2"},
    ),
    "tool search": served(
        "tool_search", {"type": "tool_search_tool_search_result", "tool_references": []}
    ),
    "advisor": served("advisor", {"type": "advisor_result", "text": "said-2"}),
    "mcp": served("mcp", [TEXT], call="mcp_tool_use", is_error=False),
    "mcp text": served("mcp", "said-2", call="mcp_tool_use", is_error=False),
    "of tomorrow": served(
        "any",
        {"type": "any_result", "content": [TEXT]},
        call="any_tool_use",
        caller={"type": "direct"},
    ),
    "fallback": [{"type": "fallback", "from": {"model": "a"}, "to": {"model": "b"}}],
    "container_upload": [{"type": "container_upload", "file_id": "file_1"}],
    "mcp_tool_listing": [{"type": "mcp_tool_listing", "mcp_server_name": "tides", "tools": []}],
}
"""Every block of a reply in the unions ContentBlock and BetaContentBlock of Anthropic's client, but
a compaction.
"""

OF_THE_USER = {
    "search_result": FOUND,
    "document": {**PAGE, "context": "tides"},
    "container_upload": {"type": "container_upload", "file_id": "file_1"},
    "tool_addition": {"type": "tool_addition", "tool": {"type": "tool_reference", "name": "f"}},
}


def replied(history: Any, messages: list[Any]) -> None:
    for message in messages:
        if message["role"] == "assistant":
            history.append_reply(
                {"id": "msg_1", "type": "message", "stop_reason": "tool_use", **message}
            )
        else:
            history.append(message)


def imported(history: Any, messages: list[Any]) -> None:
    history.append(list(decode(messages, "anthropic-messages")))


@pytest.mark.parametrize(
    "way", [append_each, replied, imported, WAYS["append of a list"], WAYS["append of events"]]
)
@pytest.mark.parametrize("blocks", OF_THE_SERVER.values(), ids=OF_THE_SERVER)
def test_a_block_of_anthropics_server_goes_back_to_it_and_its_texts_to_others(history, way, blocks):
    use = {"type": "tool_use", "id": "k1", "name": "f", "input": {}}
    said = [{"type": "text", "text": "said-1"}, *blocks, use]
    result = {"type": "tool_result", "tool_use_id": "k1", "content": "said-4"}
    way(
        history,
        [ASKED, {"role": "assistant", "content": said}, {"role": "user", "content": [result]}],
    )
    if way is imported and len(blocks) == 1:
        return  # other programs keep blocks of their own in this form
    assert history.view().to_messages("anthropic")[1]["content"] == said
    assert list(encode(history.view().events, "anthropic-messages"))[1]["content"] == said
    texts = {
        each
        for each in ("said-1", "said-2", "said-3", "said-4")
        if each in json.dumps([said, result])
    }
    for dialect in DIALECTS:
        told = history.view().to_messages(dialect)
        assert {each for each in texts if each not in json.dumps(told)} == set()
        assert PROBLEMS[dialect](told) == [] or dialect.startswith("anthropic")


@pytest.mark.parametrize(
    "way", [append_each, imported, WAYS["append of a list"], WAYS["append of events"]]
)
@pytest.mark.parametrize("block", OF_THE_USER.values(), ids=OF_THE_USER)
def test_a_block_of_the_user_and_of_a_result_goes_to_anthropic_as_it_came(history, way, block):
    use = {"type": "tool_use", "id": "k1", "name": "f", "input": {}}
    found = {
        "type": "tool_result",
        "tool_use_id": "k1",
        "content": [FOUND, {"type": "text", "text": "said-4"}],
    }
    asked = [{"type": "text", "text": "said-1"}, PAGE, block]
    called = {"role": "assistant", "content": [use]}
    way(
        history,
        [{"role": "user", "content": asked}, called, {"role": "user", "content": [found, *asked]}],
    )
    is_lost = way is imported and block["type"] not in ("search_result", "document")
    for dialect in DIALECTS:
        told = history.view().to_messages(dialect)
        assert PROBLEMS[dialect](told) == [] or block["type"] == "tool_addition"
        assert [
            json.dumps(told).count(f"said-{n}") >= least
            for n, least in ((1, 2), (2, 3), (3, 1), (4, 1))
        ] == [True] * 4
        if dialect == "anthropic" and not is_lost:
            assert [told[0]["content"], told[2]["content"]] == [asked, [found, *asked]]


class Fallback(BaseModel):
    type: str = "fallback"
    from_: dict[str, str] = Field(alias="from")


@pytest.mark.parametrize(
    "block",
    [{"type": "compaction", "content": "x"}, Fallback(**{"from": {"model": "a"}})],
    ids=repr,
)
def test_what_a_client_gives_back_as_it_got_it_is_known(history, block):
    history.append(
        [ASKED, {"role": "assistant", "content": [{"type": "text", "text": "said-1"}, block]}]
    )
    (_, told) = history.view().to_messages("anthropic")[1]["content"]
    assert told == (block if isinstance(block, dict) else block.model_dump(by_alias=True))


ITEMS = [
    {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "said-1"}]},
    {
        "type": "message",
        "role": "assistant",
        "content": [{"type": "output_text", "text": "said-2"}],
    },
    {"type": "function_call", "call_id": "k1", "name": "f", "arguments": '{"at": "said-3"}'},
    {"type": "custom_tool_call", "call_id": "k2", "name": "g", "input": "said-4"},
    {"type": "custom_tool_call_output", "call_id": "k2", "output": "said-5"},
    {
        "type": "function_call_output",
        "call_id": "k1",
        "output": [{"type": "input_text", "text": "said-6"}],
    },
]


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("way", ["events", "append_reply", "append_records"])
def test_items_of_openais_responses(history, way, dialect):
    if way == "events":
        history.append(from_openai(ITEMS))
    elif way == "append_records":
        history.append_records(ITEMS, format="openai-responses")
    else:
        history.append(from_openai(ITEMS[:1]))
        history.append_reply({"id": "resp_1", "output": ITEMS[1:4]})
        for item in ITEMS[4:]:
            history.append(from_openai(item))
    told = history.view().to_messages(dialect)
    assert (PROBLEMS[dialect](told), history.open_calls()) == ([], ())
    assert [n for n in range(1, 7) if f"said-{n}" not in json.dumps(told)] == []


def test_blocks_beside_calls_of_a_chat_and_in_results_and_prompts_change_no_role(history):
    thinking = {"type": "thinking", "thinking": "hm", "signature": "s"}
    said = [thinking, {"type": "text", "text": "said-1"}]
    prompt = {"role": "system", "content": [{"type": "text", "text": "Help."}, PAGE]}
    image = {"type": "image", "source": {"type": "url", "url": "https://x"}}
    call = {"id": "k1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    history.append([prompt, ASKED, {"role": "assistant", "content": said, "tool_calls": [call]}])
    history.append({"role": "tool", "tool_call_id": "k1", "content": [image, FOUND]})
    roles = [message["role"] for message in history.view().to_messages("litellm")]
    assert roles == ["system", "user", "assistant", "tool"]
    messages = history.view().to_messages("anthropic")
    assert [block["type"] for block in messages[1]["content"]] == ["thinking", "text", "tool_use"]
    assert messages[2]["content"][0]["content"] == [image, FOUND]


# --- one reading for append and imports ---

SIGNED = {"type": "thinking", "thinking": "said-1", "signature": "s"}
TEXTS = [
    {"type": "text", "text": "said-2"},
    {"type": "text", "text": "said-3", "cache_control": {"type": "ephemeral"}},
    {"type": "text", "text": "said-4", "annotations": ["said-5"]},
]
PARTS = [
    *TEXTS,
    {"type": "image_url", "image_url": {"url": "https://said-6", "detail": "low"}},
    {"type": "input_audio", "input_audio": {"data": "said6", "format": "wav"}},
    {"type": "file", "file": {"file_id": "said-7"}},
]
FIELDS = {
    "refusal": "said-8",
    "reasoning_content": "said-1",
    "reasoning": "said-9",
    "thinking_blocks": [SIGNED],
    "audio": {"id": "said-10", "transcript": "said-11"},
    "annotations": [{"type": "url_citation", "url_citation": {"url": "said-12"}}],
    "name": "said-13",
    "provider_specific_fields": {"citations": ["said-14"]},
    "reasoning_details": [{"type": "reasoning.text", "text": "said-15"}],
}
"""What messages of the assistant have in OpenAI's client, in litellm's, and in answers of other
servers.
"""


def drawn_chat(draw: random.Random) -> dict[str, Any]:
    def content(parts: list[Any]) -> Any:
        return draw.choice(["said-16", [draw.choice(parts) for _ in range(draw.randrange(2, 4))]])

    role = draw.choice(["system", "developer", "user", "tool", *["assistant"] * 4])
    name = draw.choice([{}, {"name": "said-13"}])
    if role != "assistant":
        call_id = {"tool_call_id": "k1"} if role == "tool" else {}
        return {
            "role": role,
            "content": content(PARTS if role == "user" else TEXTS),
            **call_id,
            **name,
        }
    calls = [
        {
            "id": "k1",
            "type": "function",
            "function": {"name": "f", "arguments": '{"at": "said-17"}'},
        },
        {
            "id": "k2",
            "type": "custom",
            "custom": {"name": "g", "input": "said-18"},
            "extra_content": {"a": "said-19"},
        },
    ]
    said = {"content": content([*TEXTS, {"type": "refusal", "refusal": "said-20"}])}
    said |= {"tool_calls": draw.sample(calls, draw.randrange(1, 3))}
    told: dict[str, Any] = {key: said[key] for key in said if draw.random() < 0.5}
    if "tool_calls" in told and draw.random() < 0.2:  # which go before it
        told["function_call"] = {"name": "f", "arguments": "said-21"}
    return {
        "role": role,
        **told,
        **{key: FIELDS[key] for key in draw.sample(list(FIELDS), draw.randrange(5))},
    }


def drawn_of_anthropic(draw: random.Random) -> dict[str, Any]:
    role, texts = (
        draw.choice(["user", "assistant"]),
        [TEXTS[0], {**TEXTS[0], "citations": [{"at": "said-5"}]}],
    )
    result = {
        "type": "tool_result",
        "tool_use_id": "k1",
        "content": draw.choice(["said-8", [*texts, FOUND]]),
    }
    kinds = {
        "user": [
            *texts,
            {**result, "is_error": True},
            {**result, "cache_control": {"at": "said-9"}},
            PAGE,
            FOUND,
        ],
        "assistant": [
            *(*texts, SIGNED, {"type": "redacted_thinking", "data": "said-6"}),
            {
                "type": "tool_use",
                "id": "k1",
                "name": "f",
                "input": {"at": "said-7"},
                "caller": "said-10",
            },
            {"type": "server_tool_use", "id": "s1", "name": "paused", "input": {"at": "said-11"}},
        ],
    }
    blocks = [draw.choice(kinds[role]) for _ in range(draw.randrange(1, 5))]
    server = draw.choice([blocks for blocks in OF_THE_SERVER.values() if len(blocks) > 1])
    return {
        "role": role,
        "content": [*blocks, *(server if role == "assistant" and draw.random() < 0.3 else ())],
    }


SHELL = [{"stdout": "said-1", "stderr": "said-2", "outcome": {"type": "exit", "exit_code": 0}}]
SAID = {"type": "input_text", "text": "said-1"}
SHOT = {"type": "computer_screenshot", "image_url": "https://said-1"}
CLIENTS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"type": "function_call", "name": "f", "arguments": '{"at": "said-3"}'}, {"output": "said-1"}),
    ({"type": "custom_tool_call", "name": "f", "input": "said-3"}, {"output": [SAID]}),
    (
        {"type": "local_shell_call", "action": {"type": "exec", "command": ["said-3"]}},
        {"output": "said-1"},
    ),
    (
        {"type": "shell_call", "action": {"commands": ["said-3"]}},
        {"output": SHELL, "max_output_length": 7},
    ),
    (
        {"type": "apply_patch_call", "operation": {"path": "said-3"}},
        {"status": "failed", "output": "said-1"},
    ),
    ({"type": "computer_call", "action": {"type": "type", "text": "said-3"}}, {"output": SHOT}),
    (
        {"type": "tool_search_call", "arguments": {"q": "said-3"}, "execution": "client"},
        {"tools": [SAID]},
    ),
    (
        {"type": "mcp_approval_request", "name": "f", "arguments": "{}"},
        {"approve": False, "reason": "said-1"},
    ),
]
"""Calls that a client answers, each with the fields of the answer."""
OF_SERVERS = [
    {"type": kind, "id": "said-4", "status": "completed"}
    for kind in (
        "web_search_call",
        "file_search_call",
        "code_interpreter_call",
        "image_generation_call",
        "mcp_call",
    )
] + [{"type": "of_tomorrow_call", "id": "said-4"}]


def read(event: Any) -> Any:
    """What an event holds of its message, but for what a history and its source say of it."""
    meta: dict[str, Any] = {key: value for key, value in event.meta.items() if key == "custom_tool"}
    event = replace(event, id=-1, origin=None, timestamp=None, cause=None, meta=meta)
    if isinstance(event, Action) and isinstance(event.arguments, str):
        event = replace(event, arguments=json.loads(event.arguments))
    return replace(event, response_id=None) if isinstance(event, Action) else event


def texts_in(value: Any) -> set[str]:
    return set(re.findall(r"said-?\d+", json.dumps(value)))


@pytest.mark.parametrize("format", ["openai-chat", "anthropic-messages"])
def test_append_and_imports_read_a_message_alike_and_lose_nothing(format):
    for seed in some(range(1_000), 300):
        message = {"openai-chat": drawn_chat, "anthropic-messages": drawn_of_anthropic}[format](
            random.Random(seed)
        )
        before, appended = json.dumps(message), from_openai(message)
        imported = [read(event) for event in decode([message], format)]
        is_empty = all(
            isinstance(event, Annotation) and event.name in ("reply", "message")
            for event in imported
        )
        assert list(map(read, appended)) == imported or (is_empty and len(appended) < 2)
        held = set(re.findall(r"said-?\d+", repr(appended)))
        assert (json.dumps(message), texts_in(message) - held) == (before, set())
        # of no call: a View has none
        if format == "openai-chat" and not is_empty and message["role"] != "tool":
            (written,) = encode([replace(event, id=n) for n, event in enumerate(appended)], format)
            # of one text, as litellm has it
            twice = ("reasoning_content",) if "thinking_blocks" in message else ()
            assert written == {"content": None} | {
                key: message[key] for key in message if key not in twice
            }


def test_a_call_whose_output_is_in_the_reply_was_made_by_the_server():
    call, output = ({"type": f"shell_call{end}", "call_id": "k1"} for end in ("", "_output"))
    said = {
        "type": "message",
        "role": "assistant",
        "content": [{"type": "output_text", "text": "Done."}],
    }
    events = from_openai({"id": "resp_1", "output": [call, output, said]})
    assert [getattr(event, "data", None) or event.content for event in events] == [
        call,
        output,
        "Done.",
    ]
    assert [type(event).__name__ for event in from_openai([call, output, said])] == [
        "Action",
        "Observation",
        "Message",
    ]


def test_what_servers_leave_out_or_add_changes_no_speaker_and_loses_nothing():
    (said,) = from_openai({"choices": [{"message": {"content": "hi"}}]})
    assert (said.source, said.content) == ("agent", "hi")
    asked, answered = (
        {"type": "message", "role": role, "content": role} for role in ("user", "assistant")
    )
    assert {
        event.source: event.content for event in from_openai({"output": [asked, answered]})
    } == {
        "agent": "assistant",
        "user": "user",
    }
    call = {
        "type": "custom_tool_call",
        "call_id": "k1",
        "name": "f",
        "input": "x",
        "arguments": "y",
    }
    assert from_openai(call)[0].meta["item"] == {"arguments": "y"}


@pytest.mark.parametrize("output", ["", []])
def test_an_empty_output_is_empty_whatever_else_its_item_tells(output):
    item = {"type": "shell_call_output", "call_id": "k1", "output": output, "max_output_length": 7}
    (event,) = from_openai(item)
    assert (event.content, event.meta["item"]["max_output_length"]) == ("", 7)


@pytest.mark.parametrize("call, answer", CLIENTS, ids=lambda item: item.get("type"))
@pytest.mark.parametrize("of_server", OF_SERVERS, ids=lambda item: item["type"])
def test_what_a_client_answers_is_a_call_and_what_the_server_did_is_named(
    history, call, answer, of_server
):
    kind = {
        "mcp_approval_request": "mcp_approval_response",
        "tool_search_call": "tool_search_output",
    }
    answer = {"type": kind.get(call["type"], f"{call['type']}_output"), **answer}
    call = (
        {**call, "id": "k1", "call_id": "k1"}
        if "approval" not in call["type"]
        else {**call, "id": "k1"}
    )
    answer |= {"approval_request_id": "k1"} if "approval" in call["type"] else {"call_id": "k1"}
    for item in (call, answer):
        assert list(map(read, from_openai(item))) == [
            read(event) for event in decode([item], "openai-responses")
        ]
    history.append(ASKED)
    history.append_reply({"id": "resp_1", "output": [of_server, call]})
    assert [event.name for event in history.events() if isinstance(event, Annotation)] == [
        of_server["type"]
    ]
    assert [action.call_id for action in history.open_calls()] == ["k1"]
    history.append(from_openai(answer))
    assert history.open_calls() == ()
    held = set(re.findall(r"said-\d+", repr(list(history.events()))))
    assert texts_in([of_server, call, answer]) - held == set()
    for dialect in DIALECTS:
        messages = history.view().to_messages(dialect)
        assert PROBLEMS[dialect](messages) == []
        assert texts_in([call, answer]) - texts_in(messages) == set()
