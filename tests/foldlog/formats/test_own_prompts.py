"""The View before each reply of real chats, beside the messages of their files: a reader that knows
only the form of a chat, a role and a content.
"""

import json

import pytest

import foldlog
from foldlog.projections import begins_reply
from tests.beside import SAMPLES, needs_samples

CHATS = sorted((SAMPLES / "openai_chat").glob("oh_llmcompl*.json"))


def text_of(content):
    if isinstance(content, str) or content is None:
        return content or ""
    return "\n".join(part.get("text", "") for part in content if part.get("type") == "text")


def form_of(messages):
    """Return the roles, texts and calls of messages. Neighbors of a role are one message."""
    form = []
    for message in messages:
        calls = [
            (each["function"]["name"], json.loads(each["function"]["arguments"] or "{}"))
            for each in message.get("tool_calls") or ()
        ]
        text = " ".join(text_of(message.get("content")).split())
        said = message["role"], text, calls
        if form and form[-1][0] == said[0] == "user":
            form[-1] = ("user", f"{form[-1][1]} {text}".strip(), [])
        else:
            form.append(said)
    return form


@needs_samples
@pytest.mark.parametrize("path", CHATS, ids=lambda path: path.stem[-22:])
def test_each_reply_was_shown_what_stands_before_it(path):
    messages = json.loads(path.read_text())["messages"]
    replies = [at for at, message in enumerate(messages) if message["role"] == "assistant"]
    with foldlog.open("memory:") as histories:
        (history,) = histories.import_(path, findings=str)
        before = None
        versions = []
        for event in history.events():
            if begins_reply(event, before):
                versions.append(event.id)
            before = event
        shown = [form_of(history.at(version).to_messages("openai")) for version in versions]
    assert len(replies) >= 1
    assert shown[: len(replies)] == [form_of(messages[:at]) for at in replies]
