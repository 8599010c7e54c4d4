"""The formats in which adapters store what their SDKs write: an event for each part of a message,
and back.
"""

import json
import re

import pytest
from msgspec.structs import replace

import foldlog
from foldlog.eventstore import Action
from foldlog.formats import Encoder, decode
from foldlog.projections import View
from foldlog.runtimes import format_named, within
from tests.foldlog.formats.reading import recorded
from tests.foldlog.formats.writing import written
from tests.foldlog.records import records_of


def test_calls_of_one_response_are_together():
    records = recorded("openai-responses", "calls of one response are together")
    sent = View.from_events(decode(records, "openai-responses")).to_messages("responses")
    ours = foldlog.from_openai(records)
    numbered = [replace(event, id=number) for number, event in enumerate(ours)]
    assert View.from_events(numbered).to_messages("responses") == sent
    assert [item.get("type", "message") for item in sent] == [item["type"] for item in records]


def test_part_of_a_message_is_not_written(history):
    messages = records_of("pydantic-ai")
    history.append_records(messages, format="pydantic-ai")
    events = list(history.events())
    stored = history._stored_records()
    starts = [event.id for event in events if event.origin.id is not None]
    for number, start in enumerate(starts):
        part = written(events[start:], "pydantic-ai", stored)
        assert part[: len(starts) - number] == messages[number : len(starts)]
    with pytest.raises(ValueError, match="record of 4 events, but only 2 of them are exported"):
        written(events[:4], "pydantic-ai", stored)


@pytest.mark.parametrize("format", ["pydantic-ai", "google-adk", "agent-framework", "strands"])
def test_redacted_message_stays_without_words(history, format):
    signed = {"type": "thinking", "thinking": "hm", "signature": "c2ln"}
    call = Action(id=0, tool="run", arguments={"of": "kite"}, call_id="k", thinking=(signed,))
    history.append_records(written([call], format), format=format)
    history.redact(1, reason="asked to")
    (remainder,) = written(history.events(), format, history._stored_records())
    assert len(within(remainder, *format_named(format).parts)) == 2
    assert re.search("hm|kite|c2ln", json.dumps(remainder)) is None
    assert '"k"' in json.dumps(remainder)


def test_changed_result_is_an_output_item(history):
    call_item = {
        "type": "function_call",
        "id": "f",
        "call_id": "c",
        "name": "measure",
        "arguments": "{}",
    }
    output = [{"type": "input_text", "text": "9 km"}]
    history.append_records(
        [call_item, {"type": "function_call_output", "call_id": "c", "output": output}],
        format="openai-responses",
    )
    call, result = history.events()
    encoder = Encoder("openai-responses", stored=history._stored_records())
    assert encoder.shown([call], [call]) == [call_item]
    (shown,) = encoder.shown([replace(result, content="cleared")], [result])
    assert (shown["type"], shown["call_id"], shown["output"]) == (
        "function_call_output",
        "c",
        "cleared",
    )
