"""Read what a program asks a model: the body of a request to OpenAI's chat completions, to OpenAI's
Responses, or to Anthropic's messages.

The messages are read as events, and rendered again. So two prompts are equal if a model reads the
same, whatever form an SDK gives to its messages.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, takewhile
from typing import Any

from foldlog._base.json_types import JsonMap, JsonObject
from foldlog._base.values import parse, replace_texts, texts_in, values_in
from foldlog._reports.words.texts import text_of
from foldlog._testing.calls import join_replies
from foldlog.condensers.strategies.digest.fold import TITLE
from foldlog.condensers.strategies.digest.names import CUT
from foldlog.eventstore import Action, Event, InvalidArgument, Observation
from foldlog.formats.replies import from_openai
from foldlog.projections import Dialect, View, as_json

Messages = list[dict[str, Any]]
_SYSTEM = ("system", "developer")
_TIME = re.compile(r"\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:[.,]\d+)?)?(?:Z|[+-]\d\d:?\d\d)?)?")
_ID = re.compile(r"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}|[0-9a-f]{24,}")
_WORD = re.compile(r"[\w-]+")
_EVENT_ID = re.compile(r"\[(\d{1,18})\]")
_IGNORED = re.compile(r"<time>|<id \d+>")
"""What stands in place of an ignored text: see ``PromptReader.read``."""
_END_IDS = re.compile(r" \[[^\]]*\]\Z")
"""The ids of events at the end of a line of a digest."""
_LAST_WORD = re.compile(r"[\w:.+-]*\Z")
_REMINDERS = re.compile(r"\s*<system-reminder>.*?</system-reminder>\s*", re.DOTALL)
"""Claude Code writes a part of its system prompt into messages of the user."""
_KEYS_OF_IDS = frozenset(("id", "call_id", "tool_call_id", "tool_use_id"))
_BODY = ("messages", "input", "system", "instructions", "tools", "stream", "stream_options")
"""The fields of a body that are not parameters."""
_TRANSPORT_FIELDS = frozenset((
    "extra_body", "extra_headers", "metadata", "model", "prompt_cache_key",
    "prompt_cache_retention", "safety_identifier", "service_tier", "store", "timeout", "user",
))  # fmt: skip
"""Parameters that say who asks and how, so the answer does not depend on them. The model is
compared if the run has recorded it.
"""
_DEFAULTS = {"n": 1, "parallel_tool_calls": True, "tool_choice": "auto", "truncation": "disabled"}
"""What a server does without the parameter, so an SDK may send it or not."""
_NO_MATTER = frozenset(("$schema", "title"))
"""Texts in the schema of a tool that some SDKs add and others leave out."""


@dataclass(frozen=True)
class AskedPrompt:
    """What a program sent to a model. ``messages`` are as the program sent them, but without the
    system prompt and the marks of a cache.
    """

    dialect: Dialect
    messages: Messages
    system: str
    tools: Sequence[JsonMap]
    parameters: JsonMap


def prompt_of(body: JsonMap, dialect: Dialect) -> AskedPrompt:
    """Read the body of a request. Raises ``InvalidArgument`` for messages or tools of another
    form.
    """
    field = "input" if dialect == "responses" else "messages"
    sent = body.get(field, ())
    if isinstance(sent, str):
        sent = [{"role": "user", "content": sent}]
    for name, items in ((field, sent), ("tools", body.get("tools") or ())):
        if not (isinstance(items, Sequence) and all(isinstance(item, Mapping) for item in items)):
            raise InvalidArgument(
                f"{name!r} in the body of a request must be a list of objects, not {items!r:.60}"
            )
    beside = body.get("system") or body.get("instructions")
    leading = [*takewhile(lambda message: message.get("role") in _SYSTEM, sent)]
    system = [{"role": "system", "content": beside}, *leading] if beside else leading
    return AskedPrompt(
        dialect,
        [*map(_without_cache_marks, sent[len(leading) :])],
        View.from_events(from_openai(system)).system_prompt,
        body.get("tools") or (),
        {name: value for name, value in body.items() if name not in _BODY},
    )


def _without_cache_marks(message: JsonMap) -> JsonObject:
    """Return a message without the marks of a prompt's cache. A program moves them from message to
    message, and no model reads them.
    """
    content = message.get("content")
    if not isinstance(content, list):
        return {**message}
    parts = [
        {name: value for name, value in part.items() if name != "cache_control"}
        if isinstance(part, dict)
        else part
        for part in content
    ]
    return {**message, "content": parts}


def _with_sorted_arguments(message: JsonMap) -> JsonObject:
    """Return a message whose calls have their arguments in one order, whatever order a model or an
    SDK wrote.
    """
    changed = {**message}
    if calls := message.get("tool_calls"):
        changed["tool_calls"] = [
            {**call, "function": _with_sorted_arguments(call["function"])} for call in calls
        ]
    arguments = message.get("arguments")
    if isinstance(arguments, str) and isinstance(parsed := parse(arguments), dict):
        changed["arguments"] = json.dumps(parsed, sort_keys=True, ensure_ascii=False)
    return changed


class PromptReader:
    """Reads the growing prompts of one run. If a prompt begins with the previous prompt, only its
    new messages are read.
    """

    def __init__(self, ignore: Collection[str]) -> None:
        self._ignore = ignore
        self._ids = dict[str, str]()
        self._messages: Messages = []
        self._view = View.from_events(())

    def read(self, messages: Messages, dialect: Dialect) -> Messages:
        """Return the messages as foldlog renders them. Ignored ids become numbers in their order,
        and ignored times a word. With the system prompt, the reminders of Claude Code are ignored.
        """
        count = len(self._messages)
        if messages[:count] != self._messages:
            count = 0
            self._view = View.from_events(())
        added = from_openai(messages[count:])
        version = self._view.version
        self._view = self._view.then(join_replies(added, version))
        self._messages = messages
        rendered = [*map(_with_sorted_arguments, self._view.to_messages(dialect))]
        if not self._ignore:
            return rendered
        for name, value in values_in(rendered):
            if name in _KEYS_OF_IDS and isinstance(value, str):
                self._numbered(value)
        plain: Messages = replace_texts(
            rendered, {text: self._without_ignored(text) for text in texts_in(rendered)}
        )
        for message in plain:
            if isinstance(message.get("content"), list):
                message["content"] = [part for part in message["content"] if part.get("text") != ""]
        return plain

    def unpaired(self) -> list[str]:
        """Describe the calls without a result, and the results without a call, of the prompt that
        was read last. foldlog renders none of them.
        """
        return unpaired(self._view)

    def _numbered(self, ignored_id: str) -> str:
        """Return the number that stands for an ignored id, which is a new one for a new id."""
        return self._ids.setdefault(ignored_id, f"<id {len(self._ids) + 1}>")

    def _without_ignored(self, text: str) -> str:
        if "system" in self._ignore:
            text = _REMINDERS.sub("", text)
        if "ids" in self._ignore:
            # A digest may name the id of a call that the prompt does not show any more.
            text = _WORD.sub(lambda match: self._ids.get(match[0], match[0]), text)
            text = _ID.sub(lambda match: self._numbered(match[0]), text)
            text = self._ids.get(text, text)
        return _TIME.sub("<time>", text) if "times" in self._ignore else text


def with_groups_of_results(messages: Messages, groups: Mapping[int, str]) -> Messages:
    """Return the messages with digests that name the group of a result of parallel calls in place
    of its id: see ``groups_of_parallel_results``.
    """

    def group(match: re.Match[str]) -> str:
        return f"[{groups.get(int(match[1]), match[1])}]"

    digests = {text: _EVENT_ID.sub(group, text) for text in texts_in(messages) if TITLE in text}
    return replace_texts(messages, digests) if groups and digests else messages


def with_recorded_cuts(messages: Messages, recorded: Messages) -> Messages:
    """Return the messages with the recorded lines of digests, where a line is cut at another place.
    A digest cuts long lines, and an ignored time or id may have another length in this run.
    """
    recorded_lines = [*_ignored_lines(recorded)]
    lines = {
        line: same
        for line in _ignored_lines(messages)
        if line not in recorded_lines
        for same in recorded_lines
        if _is_same_but_for_cut(line, same)
    }
    if not lines:
        return messages
    digests = {
        text: "\n".join(lines.get(line, line) for line in text.split("\n"))
        for text in texts_in(messages)
        if TITLE in text
    }
    changed: Messages = replace_texts(messages, digests)
    return changed


def _ignored_lines(messages: Messages) -> Iterator[str]:
    """Return the lines of digests in which a text is ignored."""
    digests = (text for text in texts_in(messages) if TITLE in text)
    return (line for text in digests for line in text.split("\n") if _IGNORED.search(line))


def _is_same_but_for_cut(line: str, other: str) -> bool:
    """Return whether two lines of digests have the same ids of events, and the beginning of one is
    the other, which is cut. The last word before the cut may be a part of an ignored text.
    """
    bodies = [_END_IDS.sub("", text) for text in (line, other)]
    if line[len(bodies[0]) :] != other[len(bodies[1]) :]:
        return False
    cut, whole = sorted(bodies, key=lambda body: (not body.endswith(CUT), len(body)))
    return cut.endswith(CUT) and whole.startswith(_LAST_WORD.sub("", cut.removesuffix(CUT)))


def unpaired(events: Iterable[Event]) -> list[str]:
    """Describe the calls without a result, and the results without a call."""
    open_calls = defaultdict[str | None, list[str]](list)
    alone: list[str] = []
    for event in events:
        if isinstance(event, Action):
            call = f"the call {event.tool}({as_json(parse(event.arguments))}) has no result"
            open_calls[event.call_id].append(call)
        elif isinstance(event, Observation) and open_calls[event.call_id]:
            del open_calls[event.call_id][0]
        elif isinstance(event, Observation):
            alone.append(f"the result {text_of(event)!r} answers no call")
    return [*alone, *chain.from_iterable(open_calls.values())]


def answering_parameters(parameters: JsonMap) -> JsonObject:
    """Return the parameters on which an answer depends, such as ``temperature``."""
    return {
        name: value
        for name, value in parameters.items()
        if name not in _TRANSPORT_FIELDS and value is not None and _DEFAULTS.get(name) != value
    }


def flat_tool(tool: JsonMap) -> JsonObject:
    """Return the schema of a tool in one form, whatever the API."""
    fields = {**tool, **(tool.get("function") or {})}
    flat = {
        "name": fields.get("name") or fields.get("type"),
        "description": fields.get("description"),
        "parameters": _plain_schema(fields.get("input_schema") or fields.get("parameters")),
    }
    return {**flat, "strict": True} if fields.get("strict") else flat


def _plain_schema(schema: Any) -> Any:
    """Return a schema without what some SDKs add to it and others leave out."""
    if isinstance(schema, list | tuple):
        return [_plain_schema(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        name: _plain_schema(value)
        for name, value in schema.items()
        # a property may be called title, and its schema is no text
        if not (name in _NO_MATTER and isinstance(value, str))
        and not (name == "additionalProperties" and value is False)
    }
