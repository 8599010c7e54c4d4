"""The texts in a value of JSON, and a copy with other texts, however deep the value is nested."""

from functools import reduce

from foldlog._app.page.texts import text_document
from foldlog._base.values import parse, texts_in
from foldlog._reports.recall_score import event_terms
from foldlog.condensers.prompts.rendering import arguments_of
from foldlog.eventstore import Action
from foldlog.formats import decode, encode
from tests.said import said


def nested(inside, levels):
    return reduce(lambda value, _: {"a": value}, range(levels), inside)


def test_deepest_values_are_written_and_shown():
    call = Action(id=0, tool="t", call_id="c", arguments=nested("half \ud800 a_name.py", 490))
    (record,) = encode([call], format="openai-chat")
    assert "half ? a_name.py" in record["tool_calls"][0]["function"]["arguments"]
    assert texts_in(text_document(call)["arguments"]) == ["half \ud800 a_name.py"]
    for arguments in (
        call.arguments,
        '{"a":' * 600 + '"a_name.py"' + "}" * 600,
        {"type": "file", "path": "a_name.py"},
    ):
        assert event_terms(Action(tool="t", arguments=arguments)) == {"a_name.py"}


def test_json_text_is_parsed_other_text_stays():
    assert [*map(parse, ('{"a": [1]}', "{", "[" * 9_000, 7))] == [{"a": [1]}, "{", "[" * 9_000, 7]
    assert arguments_of(Action(tool="t", arguments='"a text"')) == {"arguments": "a text"}
    assert arguments_of(Action(tool="t", arguments="[1]")) == {}


def test_names_of_own_fields_are_no_text(histories):
    call = Action(tool="t", arguments={"source": 1})
    histories["c"].append([said("the weather"), call])
    for text, ids in {"content": (), "arguments": (), "weather": (0,), "source": (1,)}.items():
        would = histories.maintenance.redact_matching(text, reason="asked to", dry_run=True)
        assert would.events.get("c", ()) == ids, text


def test_deep_adk_event_in_camel_case():
    deep = reduce(lambda inner, _: [inner], range(477), [])
    record = {
        "author": "user",
        "invocationId": "i",
        "content": {"parts": [{"text": "hi"}]},
        "customMetadata": deep,
    }

    def in_calls(calls):
        return (
            in_calls(calls - 1)
            if calls
            else [event.content for event in decode([record], "google-adk")]
        )

    assert in_calls(100) == ["hi"]
