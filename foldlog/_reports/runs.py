"""This module compares two runs: conversations that share no events, aligned by their requests and
calls.

A *step* is a request of the user, or a call. If a run has no calls, the messages of the agents are
also steps. Two steps are equal if they have equal content: the text of a request, or the tool and
its arguments. Retracted events are left out.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from difflib import SequenceMatcher
from hashlib import blake2b
from itertools import accumulate
from typing import Any, NamedTuple

from msgspec import UNSET
from msgspec.structs import replace

from foldlog._base.values import count_equal_beginning, parse
from foldlog._reports.answers.runs import (
    DifferingDocument,
    KnewDocument,
    LineDocument,
    PassageDocument,
    RunDocument,
    RunsDocument,
    StepDocument,
)
from foldlog._reports.figures.of_store import FiguresOfStore
from foldlog._reports.figures.overview import counted_in, is_request
from foldlog._reports.figures.prices import Prices
from foldlog._reports.figures.spending import spent_by
from foldlog._reports.figures.tables import Where
from foldlog._reports.figures.tokens import view_tokens
from foldlog._reports.passages import count_lines_apart, find_passages
from foldlog._reports.words.gist import UNLIMITED, gist
from foldlog._reports.words.safe_text import printable
from foldlog.eventstore import Action, CondensationSummary, Event, Message, Store, SystemMessage
from foldlog.eventstore.codec_json import describe_value
from foldlog.formats.model_calls import begins_call, is_call
from foldlog.formats.record import dict_or_empty
from foldlog.projections import (
    View,
    Views,
    begins_reply,
    contains,
    intervals_kept,
    words_of,
)
from foldlog.projections.conversations.labels import label

GIST = 160
"""The number of characters of the line about an event."""
_MANY = 2_000
"""If a run has more than this number of steps, frequent steps are not aligned, because that would
take too long.
"""


class _Step(NamedTuple):
    """A step of a run. Equal steps have equal keys: see ``_key``. ``version`` is the version of the
    View with which the model was called that made the step.
    """

    key: bytes
    line: LineDocument
    version: int
    is_redacted: bool


class _Run(NamedTuple):
    """A run. ``steps`` are its requests and calls, and ``steps_and_messages`` also the messages of
    the agent. ``system_prompt`` is the first one.
    """

    document: RunDocument
    system_prompt: SystemMessage | None
    steps: list[_Step]
    steps_and_messages: list[_Step]


def compared_runs(store: Store, name: str, other_name: str, prices: Prices) -> RunsDocument:
    """Align the steps of two conversations, and compare their figures. Cost: the function reads the
    events of both conversations, and two Views. In the worst case, the time grows with the product
    of the two numbers of steps.
    """
    run = _run(store, name, prices)
    other_run = _run(store, other_name, prices)
    if run.document.calls and other_run.document.calls:
        steps = run.steps
        other_steps = other_run.steps
    else:
        steps = run.steps_and_messages
        other_steps = other_run.steps_and_messages
    keys = [step.key for step in steps]
    other_keys = [step.key for step in other_steps]
    equal_count = count_equal_beginning(keys, other_keys)
    step = steps[equal_count] if equal_count < len(steps) else None
    other_step = other_steps[equal_count] if equal_count < len(other_steps) else None
    first_difference: DifferingDocument | None = None
    if step is not None or other_step is not None:
        first_difference = _difference(
            None if step is None else _event(store, name, step.line),
            None if other_step is None else _event(store, other_name, other_step.line),
        )
    view = _view_before(store, name, step)
    other_view = _view_before(store, other_name, other_step)
    knew = (_knowledge(view, other_view), _knowledge(other_view, view))
    return RunsDocument(
        runs=(run.document, other_run.document),
        same_first=equal_count,
        redacted_first=sum(step.is_redacted for step in steps[:equal_count]),
        same=sum((_readable_keys(steps) & _readable_keys(other_steps)).values()),
        system_prompts=_system_difference(run.system_prompt, other_run.system_prompt),
        first_difference=first_difference,
        knew=_with_differing_parts(store, (name, other_name), knew),
        steps=tuple(_align(steps, other_steps)),
    )


def run_of(store: Store, name: str, prices: Prices) -> RunDocument:
    """Return the figures of a run. Cost: the function reads the events of the conversation."""
    return _run(store, name, prices).document


class _EventsOfRun(NamedTuple):
    """What the events of a run contain: see ``_Run`` and ``RunDocument``."""

    system_prompt: SystemMessage | None
    steps: list[_Step]
    steps_and_messages: list[_Step]
    requests: int
    replies: int
    answer: LineDocument | None


def _run(store: Store, name: str, prices: Prices) -> _Run:
    """Return a run with its figures. The figures of a fork do not count its parent's events."""
    row = store.conversation(name)
    version = store.version(name)
    events = _events_of_run(store, name, version, own_from=row.parent_version or 0)
    figures = FiguresOfStore(store, prices=prices)
    ((_, stored_figures),) = figures.of([row])
    spent = spent_by(stored_figures.calls, prices) if stored_figures.is_sound else None
    tools_by_calls = sorted(
        figures.totals(Where(only=[name])).tools.items(), key=lambda item: -item[1].calls
    )
    tools = {tool: counted.calls for tool, counted in tools_by_calls if counted.calls}
    document = RunDocument(
        conversation=name,
        version=version,
        requests=events.requests,
        replies=events.replies,
        calls=sum(tools.values()),
        errors=stored_figures.columns.errors,
        spent=spent,
        tools=tools,
        answer=events.answer,
        task=figures.tasks([stored_figures]).get(name, UNSET),
    )
    return _Run(document, events.system_prompt, events.steps, events.steps_and_messages)


def _events_of_run(store: Store, name: str, version: int, *, own_from: int) -> _EventsOfRun:
    """Read the events of a run. The requests and replies before ``own_from`` are not counted."""
    structural = store.query(name, lambda read: list(read.structural_events(0, version)))
    kept_intervals = intervals_kept(structural, version)
    counts_event = counted_in(structural, version)
    steps: list[_Step] = []
    steps_and_messages: list[_Step] = []
    system_prompt: SystemMessage | None = None
    requests = 0
    replies = 0
    previous_reply: Event | None = None
    answer: LineDocument | None = None
    asked_at = 0
    for event in filter(counts_event, store.events(name, 0, version)):
        is_own = event.id >= own_from
        if is_own and is_request(event):
            requests += 1
        if begins_reply(event):
            if begins_call(event, previous_reply):
                asked_at = event.id
                if is_own:
                    replies += 1
            previous_reply = event
        if not event.shown or not contains(kept_intervals, event.id):
            continue
        if system_prompt is None and isinstance(event, SystemMessage):
            system_prompt = event
        if is_request(event):
            answer = None
            steps.append(_step(event, event.id))
            steps_and_messages.append(steps[-1])
        elif is_call(event):
            steps.append(_step(event, asked_at))
            steps_and_messages.append(steps[-1])
        elif _answers(event):
            steps_and_messages.append(_step(event, asked_at))
        if _answers(event):
            answer = _line(event)
    return _EventsOfRun(system_prompt, steps, steps_and_messages, requests, replies, answer)


def _answers(event: Event) -> bool:
    """Return whether an event is an answer of the agent: a message, or a call that ends the run."""
    if isinstance(event, Action):
        return event.tool == "finish" and bool(dict_or_empty(parse(event.arguments)).get("message"))
    return isinstance(event, Message) and event.source == "agent" and bool(event.content)


def _step(event: Event, version: int) -> _Step:
    """Return an event as a step of a run. ``version`` is the field of ``_Step``."""
    return _Step(_key(event), _line(event), version, event.redacted is not None)


def _readable_keys(steps: Iterable[_Step]) -> Counter[bytes]:
    """Return how often each key occurs. Redacted steps, which all look alike, are left out."""
    return Counter(step.key for step in steps if not step.is_redacted)


def _event(store: Store, name: str, line: LineDocument) -> Event:
    """Return the event of a line."""
    return next(iter(store.events(name, line.event, line.event + 1)))


def _system_difference(
    prompt: SystemMessage | None, other: SystemMessage | None
) -> DifferingDocument | None:
    """Return how two system prompts differ, or None if their words are equal."""
    if words_of(prompt.content if prompt else "") == words_of(other.content if other else ""):
        return None
    return _difference(prompt, other)


def _difference(event: Event | None, other: Event | None) -> DifferingDocument:
    """Return how two events differ. If their shown texts are equal, their whole contents are
    compared.
    """
    line = None if event is None else _line(event)
    other_line = None if other is None else _line(other)
    if event is None or other is None:
        return DifferingDocument(events=(line, other_line))
    texts = [_shown_text(side) for side in (event, other)]
    if texts[0].split() == texts[1].split():
        texts = [printable(_text(side), one_line=True) for side in (event, other)]
    passages, more = find_passages(*texts)
    contents = [words_of(getattr(side, "content", "")) for side in (event, other)]
    line_count, other_line_count = (len(content.splitlines()) for content in contents)
    return DifferingDocument(
        events=(line, other_line),
        passages=passages,
        more=more,
        lines=(line_count, other_line_count),
        lines_apart=count_lines_apart(*contents),
    )


def _shown_text(event: Event) -> str:
    """Return what a person reads of an event, without the thought of a call."""
    match event:
        case SystemMessage(content=content):
            return printable(" ".join(words_of(content).split()), one_line=True)
        case Action():
            return gist(replace(event, thought=""), UNLIMITED)
        case _:
            return gist(event, UNLIMITED)


def _key(event: Event) -> bytes:
    """Return a hash of the content of an event. Arguments as a text and as a map have equal
    hashes.
    """
    return blake2b(_text(event).encode("utf-8", "surrogatepass"), digest_size=16).digest()


def _text(event: Event) -> str:
    """Return the content of an event as JSON, without its id, its time and its origin."""
    match event:
        case Action(tool=tool, arguments=arguments):
            content: Any = (tool, parse(arguments), event.source)
        case _:
            content = getattr(event, "content", None)
    return json.dumps(
        [type(event).__name__, content], sort_keys=True, ensure_ascii=False, default=describe_value
    )


def _view_before(store: Store, name: str, step: _Step | None) -> View:
    """Return the View with which the model made a step, or the current View without a step."""
    if step is None:
        return Views(store).current(name)
    return Views(store).at(name, step.version)


def _knowledge(view: View, other: View) -> KnewDocument:
    """Return what a model was shown, and which of these events the other model was not. An event
    may have another id in the other run, so events are compared by their contents.
    """
    sent = [view[position] for position in view.fit_positions]
    other_sent = [other[position] for position in other.fit_positions]
    keys = {_key(event) for event in other_sent}
    only_here = (event for event in sent if _key(event) not in keys)
    return KnewDocument(
        version=view.version,
        events=len(sent),
        summaries=sum(isinstance(event, CondensationSummary) for event in sent),
        tokens=view_tokens(view),
        alone=tuple(map(_line, only_here)),
    )


def _with_differing_parts(
    store: Store, names: tuple[str, str], knew: tuple[KnewDocument, KnewDocument]
) -> tuple[KnewDocument, KnewDocument]:
    """If two lines look equal, show the parts of their texts that differ instead."""
    first, second = knew
    lines = [*first.alone]
    other_lines = [*second.alone]
    for index, (line, other_line) in enumerate(zip(lines, other_lines, strict=False)):
        looks_equal = replace(line, event=0) == replace(other_line, event=0)
        if looks_equal and min(line.event, other_line.event) >= 0:
            difference = _difference(
                _event(store, names[0], line), _event(store, names[1], other_line)
            )
            for passage in difference.passages[:1]:
                lines[index] = replace(line, gist=_excerpt(passage, passage.words))
                other_lines[index] = replace(
                    other_line, gist=_excerpt(passage, passage.other_words)
                )
    return replace(first, alone=tuple(lines)), replace(second, alone=tuple(other_lines))


def _excerpt(passage: PassageDocument, words: str) -> str:
    return " ".join(part for part in (passage.before, words, passage.after) if part)


def _line(event: Event) -> LineDocument:
    return LineDocument(event=event.id, kind=label(event), gist=gist(event, GIST))


def _align(steps: Sequence[_Step], others: Sequence[_Step]) -> Iterator[StepDocument]:
    """Yield the steps of two runs in one order. Equal steps are one. Requests with the same number
    and different texts are side by side.
    """
    matcher = SequenceMatcher(
        None, _places(steps, others), _places(others, steps), autojunk=len(others) > _MANY
    )
    for tag, start, stop, other_start, other_stop in matcher.get_opcodes():
        steps_here = steps[start:stop]
        steps_there = others[other_start:other_stop]
        if tag != "equal":
            yield from map(_only_here, steps_here)
            yield from map(_only_there, steps_there)
            continue
        for step, other_step in zip(steps_here, steps_there, strict=True):
            if step.key == other_step.key:
                yield StepDocument.of(step.line, other_event=other_step.line.event)
            else:
                yield _only_here(step)
                yield _only_there(other_step)


def _only_here(step: _Step) -> StepDocument:
    """Return a step that the other run does not have."""
    return StepDocument.of(step.line, other_event=None)


def _only_there(step: _Step) -> StepDocument:
    return StepDocument.of(step.line, event=None, other_event=step.line.event)


def _places(steps: Sequence[_Step], others: Sequence[_Step]) -> list[bytes | int]:
    """Return what is compared of each step: its key, or the number of a request that the other run
    lacks.
    """
    other_keys = {step.key for step in others}
    numbers = accumulate(step.line.kind == "user" for step in steps)
    return [
        number if step.line.kind == "user" and step.key not in other_keys else step.key
        for step, number in zip(steps, numbers, strict=True)
    ]
