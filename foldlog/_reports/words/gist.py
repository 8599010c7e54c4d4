"""Describe an event in a few words, for people."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from math import floor, log10
from typing import TYPE_CHECKING, Any

from foldlog._base.json_types import JsonObject
from foldlog._base.values import parse
from foldlog._reports.words.reasons import because
from foldlog._reports.words.safe_text import UNLIMITED as UNLIMITED, printable
from foldlog._reports.words.times import duration_words
from foldlog.eventstore import NOT_RECORDED, CondensationAction, Event, events, summary_of
from foldlog.eventstore.codec_json import describe_value
from foldlog.eventstore.errors import count as count
from foldlog.eventstore.times import EventTime, in_utc
from foldlog.projections import normalize, words_of

if TYPE_CHECKING:
    from foldlog._reports.answers.figures import SpentDocument, TaskDocument

_SHELL = ("-c", "-lc")
"""The options with which a shell runs the command that follows."""
INTERVALS_MAX = 6
"""The maximum number of intervals of ids in the gist of a condensation."""


def gist(event: Event, length_max: int) -> str:
    """Return one line of at most ``length_max`` characters about the event, safe to print."""
    text = printable(" ".join(_words(event, length_max)[: 4 * length_max].split()), one_line=True)
    return text if len(text) <= length_max else text[: length_max - 1] + "…"


def _words(event: Event, length_max: int) -> str:
    """Return the words about an event, which may be longer than ``length_max``."""
    match event:
        case events.SystemMessage(content=content, tools=tools):
            text = words_of(content)
            shown = text if length_max == UNLIMITED else text[:200]
            return f"{shown} ({count(len(tools), 'tool')})" if tools else shown
        case events.Message(content=content) | events.CondensationSummary(content=content):
            return words_of(content)
        case events.Action(tool=tool, arguments=arguments, thought=thought):
            text = words_of(thought)
            return f"{tool}: {_arguments(arguments)}{' - ' if text else ''}{text}"
        case events.Observation(tool=tool, content=content):
            return f"{tool}: {words_of(content)}" if tool else words_of(content)
        case events.Annotation(name=name, data=data):
            return _approval(event) or f"{name} {_thought(data) or compact(data)}"
        case events.DocumentChanges(changed=changed):
            return ", ".join(_document(name, change) for name, change in changed.items())
        case events.CondensationRequest(reason=reason):
            return reason or "a condensation is requested"
        case events.CondensationAction():
            return _condensation(event, UNLIMITED if length_max == UNLIMITED else INTERVALS_MAX)
        case events.Retraction(version=version, reason=reason):
            return f"takes back the events from {version} on" + (f": {reason}" if reason else "")
        case events.Redaction(event_ids=ids, reason=reason):
            summaries = [id_words(event_id) for event_id in ids if event_id < NOT_RECORDED]
            recorded = normalize(
                (event_id, event_id) for event_id in ids if event_id > NOT_RECORDED
            )
            erased = ", ".join([word for word in (interval_words(recorded), *summaries) if word])
            return f"erased the content of event{'' if len(ids) == 1 else 's'} {erased}: {reason}"
        case events.UnknownEvent(stored_kind=kind, stored_schema=schema):
            return f"{kind} of schema {schema}, which this version of foldlog does not know"
    return type(event).__name__


def _approval(event: events.Annotation) -> str:
    """Return who was asked or who decided about a call, or an empty text for another annotation."""
    # The name is ``effects.APPROVAL``, but that module would make every command start slower.
    if event.name != "foldlog.approval" or not isinstance(event.data, dict):
        return ""
    fields = event.data
    call = f"call {event.cause}"
    if "approved" not in fields:
        shown = compact(fields.get("shown"))
        return f"asked {fields.get('asked') or 'somebody'} to approve {call}: {shown}"
    verb = "approved" if fields["approved"] is True else "refused"
    end = f" until {fields['until']}" if fields.get("until") else ""
    reason = f": {fields['reason']}" if fields.get("reason") else ""
    token = f" with the token {fields['token']!r}" if fields.get("token") else ""
    return f"{fields.get('by') or 'somebody'}{token} {verb} {call}{end}{reason}"


def _document(name: str, change: JsonObject) -> str:
    """Return the name of a changed document. If the document contains the attributes of the
    conversation, add their values in the form that ``foldlog attributes`` prints.
    """
    if "deleted" in change:
        return f"{name} (deleted)"
    if name != events.ATTRIBUTES or "value" not in change:
        return name
    pairs = (f"{attribute}={compact(value)}" for attribute, value in change["value"].items())
    return f"{name} {' '.join(pairs)}".strip()


def _thought(data: Any) -> str:
    """Return the texts of the model's thinking in an annotation, or an empty text."""
    blocks = data.get("summary") if isinstance(data, dict) else data
    if not isinstance(blocks, list):
        blocks = []
    texts = (
        block.get("thinking") or block.get("text") for block in blocks if isinstance(block, dict)
    )
    return " ".join(text for text in texts if isinstance(text, str))


def _condensation(event: CondensationAction, intervals_max: int) -> str:
    """Return what a condensation forgot, why, and the summary that replaces it, if it has one.

    At most ``intervals_max`` intervals of forgotten events are named.
    """
    intervals, summaries = event.forgotten
    ids = interval_words(intervals, intervals_max)
    forgotten = []
    if ids:
        forgotten.append(f"event {ids}" if ids.isdecimal() else f"events {ids}")
    if summaries:
        forgotten.append(events_and_summaries(0, len(summaries)))
    parts = [" and ".join(forgotten) or "nothing"]
    if why := because(event):
        parts.append(why)
    if event.summary is not None:
        parts.append(f"a summary replaces them: {event.summary}")
    return ", ".join(parts)


def events_and_summaries(events: int, summaries: int) -> str:
    """Return a text such as ``46 events and 2 summaries``. Return an empty text if both numbers are
    0.
    """
    parts = [count(events, "event")] if events else []
    if summaries:
        parts.append(count(summaries, "summary", "summaries"))
    return " and ".join(parts)


def count_shown(ids: Sequence[int]) -> str:
    """Return the number of events and summaries in a View, such as ``46 events and 1 summary``."""
    summaries = sum(event_id < NOT_RECORDED for event_id in ids)
    return events_and_summaries(len(ids) - summaries, summaries) or "0 events"


def interval_words(intervals: Sequence[tuple[int, int]], most: int = UNLIMITED) -> str:
    """Return intervals of ids as text: ``3-9, 12, 40-77``. After ``most`` intervals, the text ends
    with ``…``.
    """
    words = [str(first) if first == last else f"{first}-{last}" for first, last in intervals[:most]]
    if len(intervals) > most:
        words.append("…")
    return ", ".join(words)


def id_words(event_id: int) -> str:
    """Return the id of an event for people, such as ``17``, or ``S260`` for the summary of
    condensation 260.
    """
    if event_id < NOT_RECORDED:
        return f"S{summary_of(event_id)}"
    return str(event_id)


def content(events: int, records: int) -> str:
    """Return two numbers as text, such as ``6 events and 4 records of sources``. ``records`` is the
    number of source records that became no event.
    """
    words = count(events, "event")
    return f"{words} and {count(records, 'record')} of sources" if records else words


def _arguments(arguments: JsonObject | str | None) -> str:
    """Return the arguments of a call as one text. If the call has the argument ``command`` or
    ``cmd``, return only the command and the argument ``path``.
    """
    arguments = parse(arguments)
    if not isinstance(arguments, dict):
        return compact(arguments)
    command = arguments.get("command") or arguments.get("cmd")
    path = arguments.get("path")
    if isinstance(command, list) and command and all(isinstance(word, str) for word in command):
        if len(command) == 3 and command[1] in _SHELL:
            command = command[-1]
        else:
            from shlex import join

            command = join(command)
    if isinstance(command, str):
        return f"{command} {path}" if isinstance(path, str) else command
    if len(arguments) == 1:
        (only,) = arguments.values()
        return compact(only)
    return compact(arguments)


def cost_words(cost: float | None, *, estimated: bool = False) -> str:
    """Return a cost in US dollars as text, or ``unknown`` for None. A very small cost has two
    significant digits. A cost that is estimated by a table of prices begins with ≈.
    """
    if cost is None:
        return "unknown"
    digits = min(12, 1 - floor(log10(cost))) if 0 < cost < 0.0001 else 4
    return f"{'≈ ' if estimated else ''}${cost:,.{digits}f}"


def spent_words(spent: SpentDocument) -> str:
    """Return the cost of calls as text."""
    return cost_words(spent.cost, estimated=spent.costs_estimated > 0)


def task_words(task: TaskDocument) -> str:
    """Return the figures of a task in words."""
    parts = [
        _number_of(task.spent.tokens, "token"),
        spent_words(task.spent),
        _number_of(task.errors, "error"),
        f"{duration_words(task.seconds)} of work",
    ]
    if task.first_event_at and task.last_event_at:
        first, last = (
            in_utc(EventTime(datetime.fromisoformat(text)))
            for text in (task.first_event_at, task.last_event_at)
        )
        parts[-1] += f" in {duration_words((last - first).total_seconds())}"
    left_out = unreached_words(task)
    if left_out:
        parts[-1] += f"; not included: {left_out}"
    return f"with {count(task.sub_agents, 'sub-agent')}: {', '.join(parts)}"


def unreached_words(task: TaskDocument) -> str:
    """Return which sub-agents the sums of a task could not reach, or an empty text."""
    if not task.sub_agents_erased:
        return ""
    words = f"{count(task.sub_agents_erased, 'sub-agent')} erased"
    if task.sub_agents_unreached:
        words += f", {task.sub_agents_unreached:,} no longer reached"
    return words


def number_words(number: int | None) -> str:
    """Return a number as text, such as ``12,345``, or ``unknown`` for None."""
    return "unknown" if number is None else f"{number:,}"


def _number_of(number: int | None, noun: str) -> str:
    """Return a number with its noun, such as ``1 error``, or ``unknown errors`` for None."""
    return f"unknown {noun}s" if number is None else count(number, noun)


def calls_words(spent: SpentDocument) -> str:
    """Return the number of model calls as text. ``96 + 2`` means 96 calls by the agent and 2 calls
    by condensers.
    """
    by_condensers = spent.condenser_calls
    by_agent = f"{spent.calls - by_condensers:,}"
    return f"{by_agent} + {by_condensers:,}" if by_condensers else by_agent


def compact(value: Any) -> str:
    """Return a value as text: a text unchanged, another value as JSON, and None as an empty
    text.
    """
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False, default=describe_value)
