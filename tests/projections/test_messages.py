"""A View as the messages that each server accepts.

``tests/golden/messages`` has the messages of small histories, a rule for each, after the ids of the
events that they are made of; ``python -m tests.projections.test_messages`` makes them again.
"""

import json

import pytest
from msgspec.structs import replace

import foldlog
from foldlog.eventstore import (
    Annotation,
    CondensationSummary,
    Message,
    SystemMessage,
    open_store,
)
from foldlog.eventstore.events import Origin
from foldlog.projections import (
    View,
    Views,
    as_json,
    content_texts,
    render_events,
    says_something,
    with_texts,
    words_of,
)
from foldlog.projections.messages.content import copy_part
from foldlog.projections.messages.turns import DIALECTS
from tests.condensers.made import answer, call, message, parts_with
from tests.golden.cases import cases_in, write_anew
from tests.imported import imported, real_histories
from tests.projections.chat_rules import PROBLEMS
from tests.projections.parts import FOUND, PDF, SIGNED, UPLOADED, document, image, text

CASES = [case for cases in cases_in("messages").values() for case in cases]


def render_case(case, dialects):
    """Return the messages of a case, which are the same for each of these dialects."""
    view = View.from_events(case.events())
    (lines,) = {_lines(view, dialect) for dialect in dialects.split(", ")}
    return lines


def _lines(view, dialect):
    lines = []
    for sent, positions in view.rendered(dialect):
        ids = " ".join(str(view[position].id) for position in positions)
        lines.append(f"{ids}: {json.dumps(sent, ensure_ascii=False)}")
    return "\n".join(lines)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.rule)
def test_golden_messages(case):
    for dialects, lines in case.outputs.items():
        assert render_case(case, dialects) == lines, "python -m tests.projections.test_messages"


def problems(view):
    """Return what each server refuses in the messages that are made for it."""
    refusals = {dialect: PROBLEMS[dialect](view.to_messages(dialect)) for dialect in DIALECTS}
    return {dialect: refused for dialect, refused in refusals.items() if refused}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.rule)
def test_servers_accept_the_golden_messages(case):
    assert problems(View.from_events(case.events())) == {}


@real_histories
def test_servers_accept_messages_of_real_histories(path):
    views = [View.from_events(history.events(0, 400)) for history in imported(path)]
    assert views
    for view in views:
        assert problems(view) == {}, view


def test_a_deeply_nested_part_is_sent():
    part = {}
    for _ in range(480):
        part = {"type": "zzz", "part": part}
    assert problems(View.from_events([message((part,))])) == {}


def test_anthropics_system_prompt_is_no_message():
    prompts = [SystemMessage(content="be kind"), SystemMessage(content=(text("brief"), image()))]
    view = View.from_events([prompts[0], message("go"), prompts[1]])
    assert view.system_prompt == "be kind\n\nbrief\n\n[image: it cannot be sent to this server]"
    assert view.to_messages("anthropic") == [{"role": "user", "content": [text("go")]}]
    assert View.from_events([message("go")]).system_prompt == ""


def test_changed_texts_leave_the_rest():
    sound = {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}}
    others = (image(), PDF, UPLOADED, sound)
    cited = text("see", citations=[{"title": "Tides", "cited_text": "4 m"}])
    for part in (*others, cited, *parts_with("ebb").values()):
        assert with_texts((part,), str) == (part,)
        (changed,) = with_texts((part,), str.upper)
        assert content_texts(changed) == [text.upper() for text in content_texts(part)]
        assert (changed["type"], changed.keys()) == (part["type"], part.keys())
    assert [content_texts(content) for content in (*others, cited)] == [
        [],
        ["a.pdf"],
        [],
        [],
        ["see"],
    ]
    assert words_of((text("see"), image(), PDF, UPLOADED, FOUND)).split("\n") == [
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
    ]


# --- which dialect ---


def test_an_unknown_dialect_is_refused():
    with pytest.raises(
        ValueError, match=r"unknown dialect 'openrouter'; use 'openai', .*'responses'"
    ):
        View.from_events([]).to_messages("openrouter")
    with pytest.raises(ValueError, match="unknown dialect 'openrouter'"):
        render_events([], [], "openrouter")
    with open_store("memory:") as store, pytest.raises(ValueError, match="unknown dialect"):
        Views(store, dialect="openrouter")
    with pytest.raises(ValueError, match="unknown dialect 'mistral'"):
        foldlog.open("memory:", agent_llm=AnAgentsModel("mistral"))


class AnAgentsModel:
    """An agent's model that says in which form its server takes messages."""

    model = "mine"
    max_input_tokens = 1_000_000
    max_output_tokens = None

    def __init__(self, dialect):
        self.dialect = dialect

    def token_sums(self, view):
        return list(range(len(view) + 1))


@pytest.mark.parametrize("dialect", DIALECTS)
def test_the_agents_model_decides_the_dialect(dialect):
    model = None if dialect == "litellm" else AnAgentsModel(dialect)
    with foldlog.open("memory:", agent_llm=model) as histories:
        history = histories["c"]
        history.append([message("go"), Message(source="agent", content="hm", thinking=(SIGNED,))])
        expected = View.from_events(history.events()).to_messages(dialect)
        for view in (history.view(), history.step(), history.at(2)):
            assert view.to_messages() == expected
            assert view.then([call()]).dialect == view.with_events([]).dialect == dialect


def test_value_nested_too_deep_becomes_a_note():
    def nested(levels):
        return {"a": nested(levels - 1)} if levels else {"b": 1, "c": [2]}

    def depth(value):
        return 1 + depth(value["a"]) if isinstance(value, dict) and "a" in value else 0

    assert copy_part(nested(8), 10) == nested(8)
    assert copy_part(nested(9), 10)["a"] != nested(8)
    assert depth(copy_part(nested(50), 10)) == 10


# --- files, numbers and marks ---


def test_picture_and_blank_text_that_came_as_files():
    """A server that takes no such file is told its name."""
    view = View.from_events(
        [
            message(
                (
                    {"type": "file", "file": {"filename": "a.png", "file_data": b"\x89PNG\r\n"}},
                    document("UklGRg==", media_type="image/webp"),
                    {"type": "file", "file": {"filename": "b.txt", "file_data": b" \n"}},
                    document("UEs=", media_type="application/zip"),
                )
            )
        ]
    )
    (sent,) = view.to_messages("anthropic")
    refused = "cannot be sent to this server; it takes PDFs, texts, and ids of uploaded files"
    assert sent["content"] == [
        {
            "type": "image",
            "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0K"},
        },
        {
            "type": "image",
            "source": {"type": "base64", "media_type": "image/webp", "data": "UklGRg=="},
        },
        text(f"[file b.txt: text/plain {refused}]"),
        text(f"[file: application/zip {refused}]"),
    ]


def test_numbers_in_arguments_reach_anthropics_server_as_they_are():
    huge = "1" + 400 * "0"
    arguments = f'{{"n": [12, -7, 1.5, 1e5, 2E3, 1e999, -1e999, {huge}]}}'
    run = replace(call(), arguments=arguments)
    sent = View.from_events([run, answer()]).to_messages("anthropic")
    numbers = sent[1]["content"][0]["input"]["n"]
    assert numbers == [12, -7, 1.5, 100000.0, 2000.0, "1e999", "-1e999", huge]
    assert list(map(type, numbers)) == [int, int, float, float, float, str, str, str]


@pytest.mark.parametrize("last, marked", [(9, "a new c e"), (8, "a new c g"), (1, "a")])
def test_marks_of_a_prompt_with_two_summaries(last, marked):
    """The newest summary is marked, and the end of the prompt that the last reply answered."""
    events = [
        message("a"),
        message("b", "agent"),
        CondensationSummary(content="old"),
        message("d", "agent"),
        CondensationSummary(content="new"),
        message("f", "agent"),
        message("c"),
        message("g", "agent"),
        message("e"),
    ]
    sent = View.from_events(events[:last]).to_messages("anthropic-cached")
    parts = [part for each in sent for part in each["content"]]
    assert [part["text"] for part in parts if "cache_control" in part] == marked.split()


def test_calls_of_custom_tools_and_compactions_for_openais_responses():
    compaction = {"type": "compaction", "id": "cmp_1", "encrypted_content": "gAAA", "by": "x"}
    view = View.from_events(
        [
            message(({**compaction, "id": None}, compaction, text("so far")), "agent"),
            replace(call("patch", input="*** Begin"), meta={"custom_tool": True}),
            answer(tool="patch"),
            call("run", "c2", input="ls"),
            answer(call_id="c2"),
            replace(call("draw", "c3", at=5), meta={"custom_tool": True}),
            answer(call_id="c3"),
        ]
    )
    items = view.to_messages("responses")
    assert items[:3] == [
        {"type": "compaction", "encrypted_content": "gAAA"},
        {"type": "compaction", "id": "cmp_1", "encrypted_content": "gAAA"},
        {"role": "assistant", "content": "so far"},
    ]
    assert [list(item.values()) for item in items[3:]] == [
        ["custom_tool_call", "c1", "patch", "*** Begin"],
        ["custom_tool_call_output", "c1", "done"],
        ["function_call", "c2", "run", '{"input": "ls"}'],
        ["function_call_output", "c2", "done"],
        ["function_call", "c3", "draw", '{"at": 5}'],
        ["function_call_output", "c3", "done"],
    ]


@pytest.mark.parametrize("dialect, length_max", [("openai", 40), ("responses", 64)])
def test_names_and_ids_of_the_greatest_length_stay(dialect, length_max):
    def sent(tool, call_id):
        events = [call(tool, call_id), answer(call_id=call_id)]
        sent = json.dumps(View.from_events(events).to_messages(dialect))
        return f'"{tool}"' in sent, sent.count(f'"{call_id}"')

    assert sent(64 * "t", length_max * "c") == (True, 2)
    assert sent(65 * "t", (length_max + 1) * "c") == (False, 0)
    view = View.from_events([call(64 * "t", 64 * "c"), answer(call_id=64 * "c")])
    (use,) = view.to_messages("anthropic")[1]["content"]
    assert (use["name"], use["id"]) == (64 * "t", 64 * "c")


def test_reasoning_without_empty_texts():
    blank = {"type": "thinking", "thinking": ""}
    hidden = {"type": "redacted_thinking", "data": "d"}
    for thinking, expected in (
        ((blank, hidden, SIGNED, blank, SIGNED), "hm\nhm"),
        ((blank,), None),
    ):
        said = replace(message("on", "agent"), thinking=thinking)
        (sent,) = View.from_events([said]).to_messages("openai-reasoning")
        assert sent.get("reasoning_content") == expected


def test_bytes_of_a_picture_tell_its_type():
    def sent(data):
        part = {"type": "image_url", "image_url": {"url": data}}
        (first,) = View.from_events([message((part,))]).to_messages("anthropic")[0]["content"]
        return first["source"]["media_type"] if first["type"] == "image" else first["text"]

    refused = "[image: it cannot be sent to this server]"
    assert sent(b"RIFF\0\0\0\0WEBPVP8 ") == "image/webp"
    assert sent(b"RIFF\0\0\0\0WAVEfmt ") == sent(b"xxxx\0\0\0\0WEBP") == refused
    assert sent(b"\xff\xd8\xff\xe0") == "image/jpeg"
    assert sent(b"GIF89a") == "image/gif"
    assert sent(b"\x89PNG\r\n") == "image/png"


def test_lists_nested_too_deep_become_a_note():
    part = {"a": [[[[1]]]], "b": "x\ud83d", "c": [b"12", {"data": b"12"}]}
    note = "(nested too deeply to be shown)"
    assert copy_part(part, 10)["a"] == [[[[1]]]]
    assert copy_part(part, 4)["a"] == [[[note]]]
    assert copy_part(part, 4)["b"] == "x?"
    assert copy_part(part, 4)["c"][1] == {"data": "MTI="}


def test_reasoning_of_a_runtime_stays_with_the_reply_after_it():
    def reasoning(item_id, **data):
        return Annotation(
            name="reasoning",
            data={"summary": [], **data},
            source="agent",
            shown=True,
            stays_with_next=True,
            origin=Origin(format="test", id=item_id),
        )

    events = [
        message("go"),
        reasoning("rs_1", encrypted_content="gAAA"),
        reasoning("rs_2"),
        call(),
        answer(),
        reasoning("rs_3"),
        message("done", "agent"),
        message("more"),
    ]
    rendered = View.from_events(events).rendered("responses")
    assert [(positions, sent.get("id") or sent["type"]) for sent, positions in rendered[1:5]] == [
        ((3,), "rs_1"),
        ((3,), "rs_2"),
        ((3,), "function_call"),
        ((4,), "function_call_output"),
    ]
    assert [(positions, sent.get("id") or sent["role"]) for sent, positions in rendered[5:]] == [
        ((6,), "rs_3"),
        ((6,), "assistant"),
        ((7,), "user"),
    ]


@pytest.mark.parametrize("dialect", DIALECTS)
def test_thinking_that_a_server_would_refuse(dialect):
    unsigned = {**SIGNED, "signature": ""}
    odd = {**SIGNED, "thinking": "x\ud83d"}
    note = Annotation(name="note", data={"id": "n_1", "summary": []}, source="agent", shown=True)
    said = replace(message("on", "agent"), thinking=(unsigned, odd, {"type": "redacted_thinking"}))
    sent = View.from_events([message("go"), note, said]).to_messages(dialect)
    assert PROBLEMS[dialect](sent) == []
    assert "signature" not in str(sent)
    assert not any(item.get("type") == "reasoning" for item in sent)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_call_id_that_a_server_uses_again(dialect):
    """The later call gets an id of its own, also where the prompt has grown since."""
    view = View.from_events([message("go")])
    for number in range(4):
        view = view.then([call(call_id="k", response_id=f"r{number}"), answer(call_id="k")])
        grown = view.rendered(dialect)
        assert grown == View.from_events(view.events).rendered(dialect)
        assert PROBLEMS[dialect]([sent for sent, _ in grown]) == []


def test_what_stands_before_a_conversation_that_the_agent_begins():
    calls = [call(call_id=name, response_id="r") for name in "ab"]
    events = [SystemMessage(content="be kind"), *calls, *(answer(call_id=name) for name in "ab")]
    rendered = View.from_events(events).rendered("litellm")
    assert [(sent["role"], positions) for sent, positions in rendered] == [
        ("system", (0,)),
        ("user", (1,)),
        ("assistant", (1, 2)),
        ("tool", (3,)),
        ("tool", (4,)),
    ]


def test_files_in_odd_forms():
    def sent(part, dialect):
        (first,) = View.from_events([message((part, text("x")))]).to_messages(dialect)
        return first["content"][0] if isinstance(first["content"], list) else first["content"]

    page = {"type": "document", "source": {"type": "url", "url": "https://x/a.pdf"}, "title": "a"}
    assert sent(page, "anthropic") == {
        "type": "document",
        "source": {"type": "url", "url": "https://x/a.pdf"},
        "title": "a",
    }
    assert sent(page, "responses") == {"type": "input_file", "file_url": "https://x/a.pdf"}
    assert sent(page, "openai").startswith("[file a: its address or id cannot be sent to this")
    marked = {**page, "cache_control": {"type": "ephemeral"}}
    assert sent(marked, "litellm") == {
        "type": "file",
        "file": {"file_id": "https://x/a.pdf", "filename": "a"},
        "cache_control": {"type": "ephemeral"},
    }
    broken = {"type": "file", "file": {"file_data": "data:text/plain;base64,A"}}
    assert sent(broken, "openai").startswith("[file: text/plain cannot be sent to this server")
    assert sent({"type": "file", "file": "x"}, "litellm") == text(
        "[file: the history does not hold it]"
    )
    odd = {"type": "file", "file": {"file_data": "data:x/odd;base64,AA=="}}
    assert sent(odd, "responses") == {
        "type": "input_file",
        "filename": "file",
        "file_data": "data:x/odd;base64,AA==",
    }
    lost = {"type": "file", "file": {"file_data": "x", "file_id": "f"}}
    assert sent(lost, "litellm") == text("[file: the history does not hold it]")
    for blocks in ("ebb", ["ebb"], (text("ebb"),)):
        whole = {"type": "document", "source": {"type": "content", "content": blocks}}
        assert sent(whole, "litellm") == text("ebb")
    film = {"type": "video_url", "video_url": {"url": "https://x/a.mp4"}}
    assert sent(film, "litellm") == film
    assert sent({**film, "video_url": {}}, "litellm")["type"] == "text"


def test_changed_texts_leave_a_picture_and_go_deep():
    picture = {
        "type": "image",
        "source": {"type": "base64", "media_type": "image/png", "data": "ebb"},
    }
    assert with_texts((picture,), str.upper) == (picture,)
    deep = text("ebb")
    for _ in range(30):
        deep = {"type": "zzz", "part": [deep]}
    assert content_texts(deep) == ["ebb"]
    for _ in range(150):
        deep = {"type": "zzz", "part": [deep]}
    for too_deep in (deep, [deep], [[deep]]):
        assert content_texts(too_deep) == []
        assert with_texts(too_deep, str.upper) == too_deep


def test_refusals_and_parts_that_only_look_like_others():
    def sent(*parts, dialect="litellm"):
        first, *_ = View.from_events([message((*parts, text("x")))]).to_messages(dialect)
        return [part["text"] for part in first["content"] if part["type"] == "text"]

    assert sent({"type": "refusal", "refusal": "no"}) == ["no", "x"]
    assert sent({"type": "refusal", "refusal": 7}, {"type": "refusal"}) == [
        "[refusal: it cannot be sent to this server]",
        "[refusal: it cannot be sent to this server]",
        "x",
    ]
    for found in ([text(" ")], [{"type": "image"}], []):
        assert sent({**FOUND, "content": found}, dialect="anthropic")[0].startswith("Tides")
    odd = image("file:image/png;base64,iVBORw0KGgo=")
    assert sent(odd, dialect="anthropic") == ["[image: it cannot be sent to this server]", "x"]
    assert not says_something(({"type": "refusal", "refusal": " "}, text("")))
    assert says_something((text(""), image()))
    assert (says_something("x"), says_something(" ")) == (True, False)


def test_reply_that_a_condenser_emptied():
    view = View.from_events([message("a"), message("b", "agent"), message("c")])
    assert len(view.to_messages()) == 3
    masked = view.with_masks({1: replace(view[1], content=" ")})
    assert [sent["role"] for sent in masked.to_messages()] == ["user"]
    assert masked.rendered() == render_events(masked.events, masked.fit_positions)
    assert len(view.to_messages()) == 3


def test_values_that_json_cannot_hold():
    assert as_json({"é": b"12", "x": float("nan")}).startswith('{"é": "[2 bytes, sha256 ')
    assert as_json({"é": float("nan")}) == '{"é": "NaN"}'
    assert as_json({"é": b"12"}).startswith('{"é": "[2 bytes, sha256 ')
    odd = replace(call(), arguments="é")
    use = View.from_events([odd, answer()]).to_messages("openai")[0]["tool_calls"][0]
    assert use["function"]["arguments"] == '{"invalid_arguments": "é"}'
    deep = {}
    for _ in range(100_000):
        deep = {"a": deep}
    assert as_json(deep) == "(nested too deeply to be shown)"


def test_text_behind_a_call_of_the_same_reply():
    """A reply is one message, in whatever order its parts were recorded."""
    first, second = (
        replace(call(call_id=name, response_id="r"), meta={"reply": "m"}) for name in "ab"
    )
    said = replace(message("both", "agent"), meta={"reply": "m"})
    results = [answer(call_id=name) for name in "ab"]
    for reply in ([first, said, second], [first, second, said], [said, first, second]):
        sent = View.from_events([message("go"), *reply, *results]).to_messages("anthropic")
        assert [each["role"] for each in sent] == ["user", "assistant", "user"]
        parts = sorted((part["type"], part.get("id")) for part in sent[1]["content"])
        assert parts == [("text", None), ("tool_use", "a"), ("tool_use", "b")]


def test_earlier_view_has_its_messages_after_a_later_one():
    earlier = View.from_events([message("go"), call(), answer()])
    expected = earlier.to_messages()
    later = earlier.then([message("done", "agent"), message("more")])
    assert later.to_messages()[:3] == expected
    assert earlier.to_messages() == expected
    assert later.to_messages()[:3] == expected


def test_messages_after_a_beginning_that_is_not_rendered():
    events = [message("on", "agent"), message("go")]
    rendered = render_events(events, [0, 1], opening=False)
    assert [sent["role"] for sent, _ in rendered] == ["assistant", "user"]
    assert [sent["role"] for sent, _ in render_events(events, [0, 1])] == [
        "user",
        "assistant",
        "user",
    ]


def test_digest_of_messages_has_32_digits():
    request = View.from_events([message("go")]).request()
    assert len(request.messages_digest) == len(request.fingerprint["beside"]) == 32


if __name__ == "__main__":
    write_anew("messages", render_case)
