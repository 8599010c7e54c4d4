"""Read what a program asks a model: the body of a request to OpenAI's chat completions, to OpenAI's
Responses, or to Anthropic's messages.

The messages are read as events, and rendered again. So two prompts are equal if a model reads the
same, whatever form an SDK gives to its messages.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any

from foldlog._base.values import replace_texts, texts_in, values_in
from foldlog._history.replies import from_openai
from foldlog._privacy.secrets import may_hold_secrets, without_secrets
from foldlog._testing.calls import join_replies
from foldlog.projections import Dialect, View

Messages = list[dict[str, Any]]
_DIALECTS: Mapping[str, Dialect] = {"input": "responses", "messages": "openai"}
_SYSTEM = ("system", "developer")
_TIME = re.compile(r"\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:[.,]\d+)?)?(?:Z|[+-]\d\d:?\d\d)?)?")
_ID = re.compile(r"\b[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}\b|\b[0-9a-f]{24,}\b")
_REMINDER = "<system-reminder>"
_REMINDERS = re.compile(r"<system-reminder>.*?</system-reminder>", re.DOTALL)
"""Claude Code writes a part of its system prompt into messages of the user."""
PASSWORD = "[password]"
"""What an exported run has in place of a password."""
_EMPTY = {"type": "text", "text": ""}
_KEYS_OF_IDS = frozenset(("id", "call_id", "tool_call_id", "tool_use_id"))
_BODY = ("messages", "input", "system", "instructions", "tools", "stream", "stream_options")


@dataclass(frozen=True)
class AskedPrompt:
    """``messages`` are as the program sent them, but without the system prompt."""

    dialect: Dialect
    messages: Messages
    system: str = ""
    tools: Sequence[Mapping[str, Any]] = ()
    parameters: Mapping[str, Any] = field(default_factory=dict)

    @property
    def beside(self) -> dict[str, Any]:
        return {"system": self.system, "tools": [*self.tools]}

    def without_secrets(self, recorded: object) -> AskedPrompt:
        """Return the prompt as an exported run has it, if it is the prompt ``recorded`` there."""
        passwords = [
            (text, re.compile(re.escape(text).replace(re.escape(PASSWORD), ".+?"), re.DOTALL))
            for text in dict.fromkeys(texts_in(recorded))
            if PASSWORD in text and text.replace(PASSWORD, "").strip()
        ]
        parts = [self.messages, self.system, [*self.tools], {**self.parameters}]
        texts = (part for pair in values_in(parts) for part in pair if isinstance(part, str))
        changed: dict[str, str] = {}
        for text in dict.fromkeys(texts):
            rest = without_secrets(text) if may_hold_secrets(text.lower().encode()) else text
            changed[text] = next((same for same, shape in passwords if shape.fullmatch(rest)), rest)
        return AskedPrompt(self.dialect, *replace_texts(parts, changed, names=True))


def prompt_of(body: Mapping[str, Any], dialect: Dialect | None = None) -> AskedPrompt:
    """Read the body of a request. Without ``dialect``, a body with ``input`` is for the Responses,
    and any other body for chat completions. Raises ``InvalidArgument`` for messages of another
    form.
    """
    dialect = dialect or _DIALECTS["input" if "input" in body else "messages"]
    sent = body.get("input" if dialect == "responses" else "messages", ())
    if isinstance(sent, str):
        sent = [{"role": "user", "content": sent}]
    beside = body.get("system") or body.get("instructions")
    system = [{"role": "system", "content": beside}] if beside else []
    leading = [*takewhile(lambda message: message.get("role") in _SYSTEM, sent)]
    system += leading
    return AskedPrompt(
        dialect,
        [*sent[len(leading) :]],
        View.from_events(from_openai(system)).system_prompt,
        body.get("tools") or (),
        {name: value for name, value in body.items() if name not in _BODY},
    )


class PromptReader:
    """Reads the growing prompts of one run. If a prompt begins with the previous prompt, only its
    new messages are read.
    """

    def __init__(self) -> None:
        self._messages: Messages = []
        self._view = View.from_events(())

    def read(self, messages: Messages, dialect: Dialect) -> Messages:
        """Return the messages as foldlog renders them."""
        count = len(self._messages)
        if messages[:count] != self._messages:
            count = 0
            self._view = View.from_events(())
        added = from_openai(messages[count:])
        version = self._view.version
        self._view = self._view.then(join_replies(added, version))
        self._messages = messages
        return self._view.to_messages(dialect)


def flat_tool(tool: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schema of a tool in one form, whatever the API."""
    fields = {**tool, **(tool.get("function") or {})}
    fields["parameters"] = fields.pop("input_schema", None) or fields.get("parameters")
    return {
        name: value
        for name, value in fields.items()
        if value is not None and name not in ("function", "cache_control", "type")
    }


def without_ignored(value: Any, ignore: Collection[str]) -> Any:
    """Replace ids by numbers in their order, and times by a word, if they are ignored. With the
    system prompt, leave out the reminders of Claude Code.
    """
    numbers: dict[str, str] = {}

    def number_of(found: str) -> str:
        return numbers.setdefault(found, f"<id {len(numbers) + 1}>")

    def replaced(item: Any, key: str = "") -> Any:
        if isinstance(item, Mapping):
            return {name: replaced(inner, name) for name, inner in item.items()}
        if isinstance(item, list | tuple):
            return [part for part in map(replaced, item) if part != _EMPTY]
        if not isinstance(item, str):
            return item
        if "system" in ignore and _REMINDER in item:
            item = _REMINDERS.sub("", item).strip()
        if "ids" in ignore:
            item = number_of(item) if key in _KEYS_OF_IDS else _ID.sub(_number(number_of), item)
        return _TIME.sub("<time>", item) if "times" in ignore else item

    return replaced(value) if ignore else value


def _number(number_of: Any) -> Any:
    return lambda match: number_of(match[0])


def text_of_message(message: Mapping[str, Any]) -> str:
    """Return the words of a message for a person, with its calls in their order."""
    words = list[str]()
    for value in (message.get("content"), message.get("output"), message.get("arguments")):
        words += _texts(value)
    for call in message.get("tool_calls") or ():
        words.append(f"{call['function']['name']}({call['function']['arguments']})")
    others = {
        name: value
        for name, value in message.items()
        if name not in ("content", "output", "arguments", "tool_calls", "role", "type")
    }
    return " ".join([*words, *(f"{name}={_json(value)}" for name, value in others.items())])


def _texts(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    if isinstance(value, list):
        return [
            part["text"] if isinstance(part.get("text"), str) else _json(part) for part in value
        ]
    return []


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
