"""Say in words how a request differs from the recorded request."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator
from itertools import zip_longest
from typing import Any

from foldlog._base.json_types import JsonMap
from foldlog._base.values import values_in
from foldlog._reports.passages import find_passages
from foldlog._reports.words.gist import count
from foldlog._testing.prompts import AskedPrompt, answering_parameters, flat_tool
from foldlog.eventstore import Event, EventStoreError, Message
from foldlog.formats.blocks import content_of
from foldlog.formats.record import dict_or_empty, omit, text_or_none
from foldlog.projections import View, as_json, words_of

NOTED = "noted"
"""The key of the names of parameters that a test noted, because the run had not recorded them."""
_NAMES = ("role", "type", "name", "tool_call_id", "call_id")
PLACEHOLDER = re.compile(r"\[(?:redacted|secret: [^]]+)\]")
"""What stands in place of a text that the record does not have."""
_ANY_TEXT = r'(?:[^"\\]|\\.)+'
"""A part of a text in JSON."""
_UP_TO = rf"(?>{_ANY_TEXT}?{{}})"
"""Any text, up to the first place of another text. The first place is enough, and a search that
tries every combination of places does not end.
"""


class RunDiffers(EventStoreError, AssertionError):
    """A program asked something else than the recorded run. The text names the call, the message
    and the words that changed.
    """


def is_same(recorded: Any, asked: Any) -> bool:
    """Return whether two JSON values are equal, where any text may stand for a placeholder."""
    if recorded == asked:
        return True
    first, *parts = map(re.escape, PLACEHOLDER.split(_in_order(recorded)))
    if not parts:
        return False
    between = "".join(map(_UP_TO.format, parts[:-1]))
    return re.fullmatch(f"{first}{between}{_ANY_TEXT}{parts[-1]}", _in_order(asked)) is not None


def _in_order(value: Any) -> str:
    """Return a value as JSON with its keys in order. A text gets quotation marks, too."""
    return json.dumps(value, ensure_ascii=False, sort_keys=True, default=as_json)


def beside_differences(
    recorded: JsonMap, asked: AskedPrompt, ignore: Collection[str]
) -> Iterator[str]:
    """Yield how the system prompt, the tools and the parameters differ, as far as the run has
    recorded them.
    """
    system = recorded.get("system", asked.system)
    if "system" not in ignore and not is_same(system, asked.system):
        yield f"the system prompt differs{_changed_words(system, asked.system)}"
    if "tools" not in ignore:
        ours = [*map(flat_tool, recorded.get("tools", asked.tools))]
        theirs = [*map(flat_tool, asked.tools)]
        if not has_parameters(recorded):  # the hooks of an SDK do not tell it either
            theirs = [omit(tool, "strict") for tool in theirs]
            ours = [omit(tool, "strict") for tool in ours]
        difference = first_difference("tool", ours, theirs)
        if difference is not None:
            yield difference
    parameters = omit(recorded.get("parameters", {}), "instructions")
    if "parameters" not in ignore and parameters:
        yield from _parameter_differences(parameters, asked.parameters)


def has_parameters(recorded: JsonMap) -> bool:
    """Return whether a run has recorded the parameters of a request. The hooks of an SDK record
    only its instructions, and a test may have noted further parameters beside them.
    """
    own = recorded.get("parameters", {}).keys() - {*recorded.get(NOTED, ())}
    return not own <= {"instructions"}


def name_differences(view: View, asked: AskedPrompt) -> Iterator[str]:
    """Yield each message whose name the run does not have. A View shows no names."""
    named = [
        (words_of(event.content), name_of(event)) for event in view if isinstance(event, Message)
    ]
    for number, message in enumerate(asked.messages, 1):
        name = message.get("name")
        if not name or message.get("role", "tool") == "tool":  # a call has the name of its tool
            continue
        text = words_of(content_of(message.get("content") or ""))
        recorded = {sender for words, sender in named if is_same(words, text)}
        if name not in recorded:
            others = ", ".join(map(repr, sorted(filter(None, recorded)))) or "none"
            yield f"message {number} has the name {name!r}, and the run has {others} there"


def name_of(event: Event) -> str | None:
    """Return the name of the person or agent who wrote a message, or None."""
    return text_or_none(dict_or_empty(event.meta, "message"), "name")


def _parameter_differences(recorded: JsonMap, asked: JsonMap) -> Iterator[str]:
    """Yield how parameters differ, as far as an answer depends on them."""
    for name, value in recorded.items():
        other = asked.get(name)
        if not is_same(value, other):
            yield f"{name} is {other!r}, and the run has {value!r}"
    for name, value in answering_parameters(asked).items():
        if name not in recorded:
            yield f"{name} is {value!r}, and the run has no {name}"


def first_difference(
    kind: str, recorded: Iterable[JsonMap], asked: Iterable[JsonMap]
) -> str | None:
    """Return how the first message or tool that differs does so, or None."""
    for number, (ours, theirs) in enumerate(zip_longest(recorded, asked), 1):
        if is_same(ours, theirs):
            continue
        if theirs is None:
            return f"{kind} {number} is missing: {_described(ours)}"
        if ours is None:
            return f"{kind} {number} is new: {_described(theirs)}"
        if _name(ours) != _name(theirs):
            return f"{kind} {number} is {_described(theirs)}\n    the run has {_described(ours)}"
        words = _changed_words(_words(ours), _words(theirs))
        return f"{kind} {number} ({_name(ours)}) differs{words}"
    return None


def _changed_words(recorded: str, asked: str) -> str:
    """Return the passages in which two texts differ, each in a line."""
    passages, more = find_passages(recorded, asked)
    lines = [
        f"\n    {passage.before} [{passage.words} → {passage.other_words}] {passage.after}"
        for passage in passages
    ]
    if not lines:
        lines = [f" in white space or form: {recorded[:200]!r} → {asked[:200]!r}"]
    if more:
        lines.append(f"\n    and {count(more, 'more place')}")
    return "".join(lines)


def _name(item: JsonMap) -> str:
    """Return by what a reader recognizes a message or a tool, such as its role or its name."""
    return " ".join(str(item[name]) for name in _NAMES if item.get(name))


def _words(item: JsonMap) -> str:
    """Return the texts of a message, or the JSON of a tool."""
    if "parameters" in item:
        return as_json(item)
    return " ".join(
        str(value)
        for name, value in values_in(item)
        if name not in ("role", "type") and not isinstance(value, dict | list)
    )


def _described(item: JsonMap) -> str:
    """Return a message or a tool in a line: what it is, and the beginning of its texts."""
    text = _words(item)
    return f"{_name(item)}: {text[:200]}{'…' if len(text) > 200 else ''}"
