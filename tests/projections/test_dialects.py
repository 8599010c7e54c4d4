"""Messages in the form that each server accepts: what is never sent, and what is never lost."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from msgspec.structs import replace

import foldlog
from foldlog.eventstore import open_store
from foldlog.eventstore.events import (
    Action,
    CondensationAction,
    CondensationSummary,
    Event,
    Message,
    Observation,
    SystemMessage,
)
from foldlog.projections import View, Views, content_texts, with_texts, words_of
from foldlog.projections.messages import DIALECTS, Dialect
from tests.beside import FOLDERS, SAMPLES, needs_samples
from tests.condensers.made import parts_with
from tests.imported import imported
from tests.projections.chat_rules import PROBLEMS

PNG = "data:image/png;base64,iVBORw0KGgo="
WEB = "https://example.com/a.png"
SIGNED = {"type": "thinking", "thinking": "hm", "signature": "sig"}


def text(said: str, **more: Any) -> dict[str, Any]:
    return {"type": "text", "text": said, **more}


def image(url: Any = PNG, **more: Any) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": url, **more}}


PDF = {"type": "file", "file": {"filename": "a.pdf", "file_data": b"%PDF-1.4"}}
SEARCHED = {
    "type": "server_tool",
    "blocks": [
        {
            "type": "server_tool_use",
            "id": "srvtoolu_1",
            "name": "web_search",
            "input": {"query": "tides"},
        },
        {
            "type": "web_search_tool_result",
            "tool_use_id": "srvtoolu_1",
            "content": [{"type": "web_search_result"}],
        },
    ],
}
MCP = {
    "type": "server_tool",
    "blocks": [
        {
            "type": "mcp_tool_use",
            "id": "mcptoolu_1",
            "name": "echo",
            "server_name": "x",
            "input": {"say": "hi"},
        },
        {
            "type": "mcp_tool_result",
            "tool_use_id": "mcptoolu_1",
            "is_error": False,
            "content": [text("ebb")],
        },
    ],
}
FOUND = {
    "type": "search_result",
    "source": "https://x",
    "title": "Tides",
    "content": [text("4 m"), text("2 m")],
}
UPLOADED = {"type": "anthropic", "block": {"type": "container_upload", "file_id": "file_1"}}
PDF_DATA = "JVBERi0xLjQ="


def document(
    data: Any, kind: str = "base64", media_type: str = "application/pdf", **more: Any
) -> dict[str, Any]:
    return {
        "type": "document",
        "source": {"type": kind, "media_type": media_type, "data": data},
        **more,
    }


def call(call_id: str | None = "a", tool: str = "run", **more: Any) -> Action:
    return Action(tool=tool, call_id=call_id, **{"arguments": {"command": "ls"}, **more})


def result(content: Any = "done", call_id: str = "a", **more: Any) -> Observation:
    return Observation(tool="run", content=content, call_id=call_id, **more)


ASKED = Message(source="user", content="go")


def sent(dialect: Dialect, *events: Event) -> list[dict[str, Any]]:
    messages = View.from_events([ASKED, *events]).to_messages(dialect)
    assert PROBLEMS[dialect](messages) == []
    return messages


def contents(messages: list[dict[str, Any]], role: str) -> list[Any]:
    return [message["content"] for message in messages if message["role"] == role]


# -- what no server takes
# ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize(
    "part",
    [
        {"type": "resource", "resource": {"uri": "file:///x", "text": "ebb"}},
        {"type": "zzz", "deep": [{"deeper": {"type": "text", "text": "ebb"}}]},
        {"type": "zzz", "data": "AAAA", "source": {"type": "text", "data": "ebb"}},
        {"type": "text", "text": {"value": "ebb", "annotations": []}},
        {"type": "text", "text": {"other": [{"text": "ebb"}]}},
        {"type": "text", "text": None, "content": "ebb"},
        {"type": "zzz", "text": {"text": "ebb"}},
    ],
)
def test_of_a_part_of_an_unknown_type_the_texts_at_any_depth_are_sent(part, dialect):
    messages = View.from_events(
        [Message(source="user", content=[part]), call(), result([part])]
    ).to_messages(dialect)
    assert json.dumps(messages).count("ebb") == 2
    assert part["type"] == "text" or f'"{part["type"]}"' not in json.dumps(messages)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_message_that_says_nothing_is_left_out(dialect):
    one = Message(source="agent", content="one")
    for blank in (
        "",
        " \n",
        (),
        (text(" "),),
        ({"type": "text"},),
        ({"type": "text", "text": None},),
    ):
        for source in ("agent", "user", "environment"):
            told = sent(dialect, one, Message(source=source, content=blank), call(), result())
            assert told == sent(dialect, one, call(), result()), (blank, source)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_result_that_says_nothing_stays_a_result_and_an_error_says_that_it_is_one(dialect):
    said = json.dumps(
        sent(dialect, call("a"), result("", "a"), call("b"), result(" ", "b", is_error=True))
    )
    assert said.count("(it failed and said nothing)") == 1
    assert said.count("(no output)") == 1


def test_a_tool_message_holds_its_images_for_litellm_and_anthropic_and_not_for_openai():
    events = (
        call("a", response_id="r"),
        call("b", response_id="r"),
        result((text("see"), image())),
        result("fine", "b"),
    )
    litellm = sent("litellm", *events)
    assert [m["content"] for m in litellm if m["role"] == "tool"] == [
        [text("see"), image()],
        "fine",
    ]
    anthropic = sent("anthropic", *events)
    source = {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}
    assert anthropic[-1]["content"][0]["content"] == [
        text("see"),
        {"type": "image", "source": source},
    ]
    openai = sent("openai", *events, Message(source="user", content="well?"))
    assert [m["role"] for m in openai] == ["user", "assistant", "tool", "tool", "user"]
    assert openai[2]["content"] == "see\n\n[image: it is in the user's message after this one]"
    assert openai[4]["content"] == [
        text("[an image of the result of run follows]"),
        image(),
        text("well?"),
    ]


def test_the_image_of_an_error_does_not_stand_in_the_result_for_anthropic():
    messages = sent("anthropic", call(), result((image(),), is_error=True))
    answer, label, shown = messages[-1]["content"]
    assert answer["content"] == "[image: it is in the user's message after this one]"
    assert (label["type"], shown["type"]) == ("text", "image")


@pytest.mark.parametrize("dialect", DIALECTS)
def test_an_image_of_an_assistant_or_a_system_prompt_becomes_the_users(dialect):
    messages = sent(
        dialect,
        SystemMessage(content=(text("be kind"), image())),
        Message(source="agent", content=(image(),)),
    )
    assert [m["role"] for m in messages][-2:] == ["assistant", "user"]
    assert "iVBORw0KGgo=" in json.dumps(messages[-1])


@pytest.mark.parametrize(
    "given", [PDF, document(b"%PDF-1.4", title="a.pdf"), document(PDF_DATA, title="a.pdf")]
)
def test_a_pdf_goes_to_each_server_in_its_form(given):
    ours = Message(source="user", content=(given,))
    url = f"data:application/pdf;base64,{PDF_DATA}"
    for dialect in ("openai", "litellm"):
        (part,) = sent(dialect, Message(source="agent", content="yes?"), ours)[-1]["content"]
        assert part == {"type": "file", "file": {"filename": "a.pdf", "file_data": url}}
    (block,) = sent("anthropic", Message(source="agent", content="yes?"), ours)[-1]["content"]
    source = {"type": "base64", "media_type": "application/pdf", "data": PDF_DATA}
    assert block == {"type": "document", "source": source, "title": "a.pdf"}


@pytest.mark.parametrize("dialect", ["openai", "litellm"])
def test_the_file_of_a_result_stands_in_the_users_message_after_it(dialect):
    *_, answer, shown = sent(dialect, call(), result((PDF,)))
    assert "file: it is in the user's message after this one" in json.dumps(answer)
    assert PDF_DATA in json.dumps(shown)
    assert (
        sent("anthropic", call(), result((PDF,)))[-1]["content"][0]["content"][0]["type"]
        == "document"
    )


def test_a_server_of_responses_takes_documents_and_is_told_of_a_sound():
    sheet, sound = (
        {"type": "file", "file": {"file_data": f"data:{kind};base64,UEs="}}
        for kind in ("text/x", "audio/wav")
    )
    packed = {"type": "file", "file": {"file_data": "data:application/zip;base64,UEs="}}
    (message,) = sent("responses", Message(source="user", content=(sheet, packed, PDF, sound)))
    _, text, archive, pdf, named = message["content"]
    assert text == {"type": "input_text", "text": "file:\nPK"}
    assert archive["filename"] == "file.zip"
    assert pdf["type"] == "input_file"
    assert named["text"].startswith("[file: audio/wav cannot be sent")


def test_a_text_file_is_sent_as_text_and_a_file_that_no_server_takes_is_named():
    notes = {"type": "input_file", "filename": "notes.txt", "file_data": b"remember"}
    packed = {"type": "file", "file": {"filename": "a.zip", "file_data": b"PK"}}
    ours = Message(source="user", content=(notes, packed))
    told = "[file a.zip: application/zip cannot be sent to this server; it takes PDFs"
    openai = sent("openai", ours)[-1]["content"]
    assert "notes.txt:\nremember" in openai
    assert told in openai
    _, text_file, named = sent("anthropic", ours)[-1]["content"]
    assert (text_file["source"]["data"], text_file["title"]) == ("remember", "notes.txt")
    assert named["text"].startswith(told)


def test_thinking_goes_to_those_who_take_it_with_its_signature():
    redacted = {"type": "redacted_thinking", "data": "x"}
    loop = (
        call(
            thinking=(
                SIGNED,
                {"type": "thinking", "thinking": "unsigned"},
                redacted,
                {"type": "odd"},
            )
        ),
        result(),
    )
    assert sent("litellm", *loop)[1]["thinking_blocks"] == [SIGNED, redacted]
    assert sent("anthropic", *loop)[1]["content"][:2] == [SIGNED, redacted]
    assert "thinking_blocks" not in sent("openai", *loop)[1]
    split = sent("anthropic", Message(source="agent", content="I look"), *loop)[1]["content"]
    assert [block["type"] for block in split] == [
        "thinking",
        "redacted_thinking",
        "text",
        "tool_use",
    ]


@pytest.mark.parametrize("dialect", DIALECTS)
def test_what_one_reply_says_before_its_calls_is_in_their_message(dialect):
    def said(words, reply="r1"):
        return Message(source="agent", content=words, meta={"reply": reply})

    parted = Action(
        tool="ls", call_id="a", response_id="m", thinking=(SIGNED,), meta={"reply": "r1"}
    )
    whole = replace(parted, thought=(text("one"), text("two")))
    messages = sent(dialect, said("one"), said("two"), parted, result(call_id="a"))
    assert messages == sent(dialect, whole, result(call_id="a"))
    assert sum(each.get("role") == "assistant" for each in messages) == 1
    if not dialect.startswith("anthropic"):  # whose messages are by turns
        other = sent(dialect, said("one", "r0"), parted, result(call_id="a"))
        assert len(other) == len(sent(dialect, parted, result(call_id="a"))) + 1


@pytest.mark.parametrize("dialect", DIALECTS)
def test_arguments_that_are_no_object_are_sent_as_one_that_holds_them(dialect):
    for broken in ("{", "[1]", '"x"', "null", '{"a": NaN}', '{"a": 1} {', "\ud800"):
        assert "invalid_arguments" in json.dumps(sent(dialect, call(arguments=broken), result())), (
            broken
        )
    for odd in ('{"a": 1e999}', {"a": float("inf")}, {"a": [float("nan")]}):
        # a number that JSON does not know breaks no prompt
        sent(dialect, call(arguments=odd), result())


@pytest.mark.parametrize("dialect", DIALECTS)
def test_names_that_servers_refuse_are_changed_and_stay_different(dialect):
    names = ["run it", "run/it", "run_it", "", "r" * 80, "r" * 90, "工具"]
    events = [
        event
        for n, name in enumerate(names)
        for event in (call(str(n), name), result(call_id=str(n)))
    ]
    messages = sent(dialect, *events)
    if dialect == "responses":
        told = [item["name"] for item in messages if "name" in item]
    elif dialect.startswith("anthropic"):
        told = [block["name"] for c in contents(messages, "assistant") for block in c]
    else:
        told = [made["function"]["name"] for m in messages for made in m.get("tool_calls", ())]
    assert len(set(told)) == len(names)
    assert told[2] == "run_it"


def test_a_call_id_is_changed_only_where_the_server_refuses_it():
    odd, long = "a b", "c" * 60
    events = call(odd), result(call_id=odd), call(long), result(call_id=long)
    ids = {dialect: sent(dialect, *events) for dialect in DIALECTS}
    assert [made["id"] for m in ids["litellm"] for made in m.get("tool_calls", ())] == [odd, long]
    first, second = (made["id"] for m in ids["openai"] for made in m.get("tool_calls", ()))
    assert first == odd
    assert len(second) <= 40
    used = [block["id"] for c in contents(ids["anthropic"], "assistant") for block in c]
    assert used[0].startswith("a_b")
    assert used[1] == long


@pytest.mark.parametrize("dialect", DIALECTS)
def test_half_a_surrogate_pair_does_not_break_a_prompt(dialect):
    half = "x\ud83d"
    messages = sent(
        dialect,
        SystemMessage(content=half),
        Message(source="user", content=(text(half),)),
        call("i\ud83d", arguments=half, thought=half),
        result(half, "i\ud83d"),
        call("b", arguments={"a": half}, thinking=({**SIGNED, "thinking": half},)),
        result(half, "b"),
        Message(
            source="agent",
            content="on",
            thinking=({"type": "reasoning", "id": half, "summary": [text(half)]},),
        ),
    )
    assert json.dumps(messages, ensure_ascii=False).encode().count(b"x?") >= 5


@pytest.mark.parametrize("dialect", ["litellm", "anthropic"])
def test_a_conversation_whose_beginning_was_forgotten_begins_with_the_user(dialect):
    view = View.from_events([ASKED, call(), result(), CondensationAction(forgotten_event_ids=(0,))])
    messages = view.to_messages(dialect)
    assert PROBLEMS[dialect](messages) == []
    assert messages[0] == {
        "role": "user",
        "content": "[The conversation before this point is not shown.]",
    }
    assert view.to_messages("openai")[0]["role"] == "assistant"


def test_the_system_prompt_comes_first_also_where_the_beginning_was_forgotten():
    view = View.from_events([SystemMessage(content="be kind"), call(), result()])
    assert [m["role"] for m in view.to_messages("litellm")] == [
        "system",
        "user",
        "assistant",
        "tool",
    ]


def test_anthropics_system_prompt_is_apart_from_the_messages():
    view = View.from_events(
        [
            SystemMessage(content="be kind"),
            ASKED,
            SystemMessage(content=(text("be brief"), image())),
        ]
    )
    assert view.system_prompt == "be kind\n\nbe brief\n\n[image: it cannot be sent to this server]"
    assert contents(view.to_messages("anthropic"), "user") == [[text("go")]]
    assert View.from_events([ASKED]).system_prompt == ""


def test_for_anthropic_neighbours_of_one_role_are_one_message_and_the_last_ends_without_white_space():
    messages = sent(
        "anthropic",
        Message(source="agent", content="one "),
        Message(source="agent", content="two \n"),
    )
    assert messages[1]["content"] == [text("one "), text("two")]


def test_for_openai_texts_alone_are_one_text_and_unknown_keys_are_left_out():
    parts = (text("one", cache_control={"type": "ephemeral"}), text("two"))
    messages = sent(
        "openai",
        Message(source="agent", content=parts),
        Message(source="user", content=(*parts, image(detail="low", x=1))),
    )
    assert messages[1]["content"] == "one\n\ntwo"
    assert messages[2]["content"] == [text("one"), text("two"), image(detail="low")]


def test_marks_stand_where_the_next_prompts_begin_alike():
    """The first part and the summary stay where the rest is forgotten; the third is the end of the
    prompt before.
    """
    events = [
        Message(source="user", content="do it"),
        CondensationSummary(content="so far"),
        call("a"),
        result("a"),
    ]
    events = [*events, call("b"), result(call_id="b")]
    view = View.from_events(replace(event, id=n) for n, event in enumerate(events))
    messages = view.to_messages("anthropic-cached")
    marked = [["cache_control" in part for part in message["content"]] for message in messages]
    assert (marked, messages[0]["content"][1]["text"]) == (
        [[True, True], [False], [True], [False], [True]],
        "so far",
    )
    for message in messages:
        for part in message["content"]:
            part.pop("cache_control", None)
    assert messages == view.to_messages("anthropic")
    assert View.from_events(()).to_messages("anthropic-cached") == []


@pytest.mark.parametrize("dialect", ["litellm", "anthropic"])
def test_the_last_four_marks_for_the_cache_stay(dialect):
    marked = tuple(text(str(n), cache_control={"type": "ephemeral"}) for n in range(6))
    _, _, told = sent(
        dialect, Message(source="agent", content="hi"), Message(source="user", content=marked)
    )
    assert [part["text"] for part in told["content"] if "cache_control" in part] == [
        "2",
        "3",
        "4",
        "5",
    ]


@pytest.mark.parametrize("dialect", DIALECTS)
def test_what_a_server_cannot_take_is_named_and_an_image_without_an_address_is_said_to_be_missing(
    dialect,
):
    unsent = [image(f"data:image/{each}") for each in ("svg+xml;base64,PHN2Zy8+", "png;base64,")]
    told = [
        ("image: it cannot be sent to this server", part)
        for part in (*unsent, image("file:///a.png"))
    ]
    told.append(("video: it cannot be sent to this server", {"type": "video_url", "video_url": {}}))
    empty = (image(""), image(None), {"type": "image_url"}, {"type": "image", "source": {}})
    told = [] if dialect == "litellm" else told  # which takes what any provider does
    for reason, part in (*told, *(("image: the history does not hold it", part) for part in empty)):
        said = json.dumps(
            sent(
                dialect,
                Message(source="agent", content="?"),
                Message(source="user", content=(part,)),
            )
        )
        assert f"[{reason}]" in said, part


@pytest.mark.parametrize("dialect", DIALECTS)
def test_blocks_of_anthropics_server_go_back_to_it_and_their_texts_to_another(dialect):
    own = FOUND, UPLOADED
    made = *(call(), result((FOUND, UPLOADED))), *(call("b"), result((FOUND,), "b", is_error=True))
    messages = sent(
        dialect, Message(source="user", content=own), Message(source="agent", content=(MCP,)), *made
    )
    if dialect.startswith("anthropic"):
        first, said, result_of_a, *_ = (message["content"] for message in messages)
        assert [block["type"] for block in said] == ["mcp_tool_use", "mcp_tool_result", "tool_use"]
        assert first[1:] == [FOUND, UPLOADED["block"]]
        found, uploaded = result_of_a[0]["content"]
        assert (found, uploaded["type"]) == (
            FOUND,
            "text",
        ), "a result may not put a file into a container"
    told = json.dumps(messages)
    assert [told.count(each) for each in ("Tides", "4 m", "2 m", "ebb")] == [3, 3, 3, 1]


@pytest.mark.parametrize("dialect", DIALECTS)
def test_the_texts_in_a_part_of_an_unknown_type_are_sent(dialect):
    document = {
        "type": "document",
        "source": {"type": "text", "media_type": "text/plain", "data": "page"},
    }
    inner = {
        "type": "odd_result",
        "stdout": "out",
        "stderr": "err",
        "content": ["a", {"text": "b\ud800"}, document],
    }
    for source in ("user", "agent"):
        said = json.dumps(
            sent(
                dialect,
                Message(source="agent", content="?"),
                Message(source=source, content=(inner,)),
            )
        )
        if dialect != "litellm" or source == "agent":  # which takes what any provider does
            assert "out\\nerr\\na\\nb?\\npage" in said


def test_texts_are_changed_in_their_places_and_all_else_stays():
    others = (
        image(),
        PDF,
        UPLOADED,
        {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}},
    )
    cited = text("see", citations=[{"title": "Tides", "cited_text": "4 m"}])
    for part in (*others, cited, *parts_with("ebb").values()):
        assert with_texts((part,), str) == (part,)
        (changed,) = with_texts((part,), str.upper)
        assert content_texts(changed) == [each.upper() for each in content_texts(part)]
        assert (changed["type"], changed.keys()) == (part["type"], part.keys())
    assert [content_texts(each) for each in (*others, cited)] == [[], ["a.pdf"], [], [], ["see"]]
    assert words_of((text("see"), image(), *others[1:3], FOUND)).split("\n") == [
        *(
            "see",
            "[image_url]",
            "[file]",
            "a.pdf",
            "[anthropic]",
            "[search_result]",
            "Tides",
            "https://x",
            "4 m",
            "2 m",
        )
    ]


@pytest.mark.parametrize("dialect", DIALECTS)
def test_an_image_in_anthropics_form_is_sent_in_the_servers_own(dialect):
    of_data = {
        "type": "image",
        "source": {"type": "base64", "media_type": "image/png", "data": "AA=="},
    }
    of_web = {"type": "image", "source": {"type": "url", "url": WEB}}
    (told,) = contents(sent(dialect, Message(source="user", content=(of_data, of_web))), "user")
    ours = [image("data:image/png;base64,AA=="), image(WEB)]
    if dialect == "responses":
        ours = [{"type": "input_image", "detail": "auto", **part["image_url"]} for part in ours]
        ours = [
            {**{k: v for k, v in part.items() if k != "url"}, "image_url": part["url"]}
            for part in ours
        ]
    for part in told:
        part.pop("cache_control", None)
    assert told[1:] == ([of_data, of_web] if dialect.startswith("anthropic") else ours)


# -- which dialect
# --------------------------------------------------------------------------------------------------


def test_an_unknown_dialect_is_refused():
    view = View.from_events([ASKED])
    with pytest.raises(
        ValueError, match=r"unknown dialect 'openrouter'; use 'openai', .*'responses'"
    ):
        view.to_messages("openrouter")
    with open_store("memory:") as store, pytest.raises(ValueError, match="unknown dialect"):
        Views(store, dialect="openrouter")


class AnAgentsModel:
    """An agent's model that says in which form its server takes messages."""

    model, max_input_tokens, max_output_tokens = "mine", 1_000_000, None

    def __init__(self, dialect: str) -> None:
        self.dialect = dialect

    def token_sums(self, view: View) -> list[int]:
        return list(range(len(view) + 1))


@pytest.mark.parametrize("dialect", DIALECTS)
def test_without_a_name_it_is_the_dialect_of_the_agents_model(dialect):
    events = [ASKED, call(thinking=(SIGNED,)), result((image(),))]
    with foldlog.open("memory:", agent_llm=AnAgentsModel(dialect)) as histories:
        history = histories["c"]
        history.append(events)
        expected = View.from_events(events).to_messages(dialect)
        assert (
            history.view().to_messages()
            == history.step().to_messages()
            == history.at(3).to_messages()
            == expected
        )
        assert history.view().then([]).dialect == history.view().with_events([]).dialect == dialect


def test_without_an_agents_model_it_is_litellms():
    with foldlog.open("memory:") as histories:
        histories["c"].append([ASKED, call(thinking=(SIGNED,)), result()])
        assert histories["c"].view().dialect == "litellm"
        assert histories["c"].view().to_messages()[1]["thinking_blocks"] == [SIGNED]
    with pytest.raises(ValueError, match="unknown dialect 'mistral'"):
        foldlog.open("memory:", agent_llm=AnAgentsModel("mistral"))


# -- real histories
# --------------------------------------------------------------------------------------------------


def sampled(folder: str) -> Iterator[View]:
    for history in imported(SAMPLES / folder):
        yield View.from_events(history.events(0, 400))


@needs_samples
@pytest.mark.parametrize("folder", FOLDERS.values())
def test_real_histories_are_accepted(folder, record_property):
    views = list(sampled(folder))
    for view in views:
        for dialect in DIALECTS:
            assert PROBLEMS[dialect](view.to_messages(dialect)) == [], (view, dialect)
    record_property("compared", f"{len(views)} histories in {len(DIALECTS)} dialects")
    assert views
