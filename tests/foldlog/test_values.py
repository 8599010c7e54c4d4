"""What is in a value of JSON, and a copy with other texts, however deep it is nested."""

from functools import reduce

from foldlog._base.values import parse, replace_texts, texts_in
from foldlog._page.texts import text_document
from foldlog._privacy.matching import events_with, holding
from foldlog._reports.recall_score import event_terms
from foldlog.condensers.prompts.rendering import arguments_of
from foldlog.eventstore import Action, Message, open_store
from foldlog.formats import decode, encode


def nested(inside, levels):
    return reduce(lambda value, _: {"a": value}, range(levels), inside)


def test_texts_stand_in_their_order_also_in_the_fields_of_an_event():
    event = Message(source="user", content=["a", {"b": "c", "d": ("e", 1)}], meta={"f": "g"})
    assert [text for text in texts_in([event, "h"]) if len(text) == 1] == ["g", "a", "c", "e", "h"]


def test_no_depth_is_too_deep():
    deep = nested("x", 100_000)
    assert texts_in(deep) == ["x"]
    assert texts_in(replace_texts(deep, {"x": "y"})) == ["y"]
    # Python itself frees it level by level
    while deep := deep.get("a") if isinstance(deep, dict) else None:
        pass


def test_what_is_nested_as_deep_as_the_store_takes_is_written_shown_and_measured():
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


def test_a_text_of_json_is_its_value_and_another_text_stays():
    assert [*map(parse, ('{"a": [1]}', "{", "[" * 9_000, 7))] == [{"a": [1]}, "{", "[" * 9_000, 7]
    assert arguments_of(Action(tool="t", arguments='"a text"')) == {"arguments": "a text"}


def test_the_names_of_our_own_fields_are_no_text_of_an_event(tmp_path):
    with open_store(f"sqlite:///{tmp_path}/s.db") as store:
        events = [
            Message(id=0, source="user", content="the weather"),
            Action(id=1, tool="t", arguments={"source": 1}),
        ]
        store.append("c", events, expected_version=0)
        for text, ids in {"content": [], "arguments": [], "weather": [0], "source": [1]}.items():
            holds = holding(text)
            assert [each.id for each in events_with(store, "c", holds)] == ids, text


def test_an_adk_event_in_camel_case_may_be_nested_as_deep_as_a_record_may():
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
