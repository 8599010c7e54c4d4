"""Say in words how a request differs from the recorded request."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import Any

from foldlog._reports.passages import find_passages
from foldlog._testing.prompts import PASSWORD, AskedPrompt, Messages, flat_tool, text_of_message
from foldlog.eventstore import EventStoreError
from foldlog.projections import as_json


class RunDiffers(EventStoreError, AssertionError):
    """A program asked something else than the recorded run. The text names the call, the message
    and the words that changed.
    """


def beside_differences(
    recorded: Mapping[str, Any], asked: AskedPrompt, ignore: Collection[str]
) -> Iterator[str]:
    """Yield how the system prompt, the tools and the parameters differ, as far as the run has
    recorded them.
    """
    system = recorded.get("system")
    if system is not None and "system" not in ignore and system != asked.system:
        yield f"the system prompt differs{changed_words(system, asked.system)}"
    if recorded.get("tools") is not None:
        yield from _tool_differences(recorded["tools"], asked.tools)
    for name, value in recorded.get("parameters", {}).items():
        other = asked.parameters.get(name)
        if other != value and PASSWORD not in str(value):  # the password is not in the file
            yield f"{name} is {other!r}, and the run has {value!r}"


def message_difference(recorded: Messages, asked: Messages) -> str | None:
    """Return how the first message that differs does so, or None."""
    for number, (ours, theirs) in enumerate(zip_longest(recorded, asked), 1):
        if ours == theirs:
            continue
        if theirs is None:
            return f"message {number} is missing: {_described(ours)}"
        if ours is None:
            return f"message {number} is new: {_described(theirs)}"
        if _kind(ours) != _kind(theirs):
            return f"message {number} is {_described(theirs)}\n    the run has {_described(ours)}"
        words = changed_words(text_of_message(ours), text_of_message(theirs))
        return f"message {number} ({_kind(ours)}) differs{words}"
    return None


def changed_words(recorded: str, asked: str) -> str:
    passages, more = find_passages(recorded, asked)
    lines = [
        f"\n    {passage.before} [{passage.words} → {passage.other_words}] {passage.after}"
        for passage in passages
    ]
    if not lines:
        lines = [f" in white space or form: {recorded[:200]!r} → {asked[:200]!r}"]
    return "".join(lines) + (f"\n    and {more} more places" if more else "")


def _tool_differences(
    recorded: Sequence[Mapping[str, Any]], asked: Sequence[Mapping[str, Any]]
) -> Iterator[str]:
    ours, theirs = (
        {str(tool.get("name")): tool for tool in map(flat_tool, tools)}
        for tools in (recorded, asked)
    )
    for name in ours.keys() | theirs.keys():
        if name not in theirs:
            yield f"the tool {name!r} is missing"
        elif name not in ours:
            yield f"the tool {name!r} is new"
        elif ours[name] != theirs[name]:
            words = changed_words(*(as_json(tools[name]) for tools in (ours, theirs)))
            yield f"the schema of the tool {name!r} differs{words}"
    if ours.keys() == theirs.keys() and [*ours] != [*theirs]:
        yield f"the tools are in another order: {', '.join(ours)} → {', '.join(theirs)}"


def _kind(message: Mapping[str, Any]) -> str:
    kind = str(message.get("role") or message.get("type"))
    call = message.get("tool_call_id") or message.get("call_id")
    return f"{kind} {call}" if call else kind


def _described(message: Mapping[str, Any]) -> str:
    text = text_of_message(message)
    return f"{_kind(message)}: {text[:200]}{'…' if len(text) > 200 else ''}"
