"""Two runs beside each other: conversations without a common past, aligned by what was asked and
called.

A *step* is a request of the user, or a call. Two steps are the same if they say the same: the words
of a request, or the tool and its arguments. What a retraction took back is left out.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from difflib import SequenceMatcher
from hashlib import blake2b
from itertools import accumulate, chain, repeat, takewhile
from typing import Any, NamedTuple

from msgspec.structs import replace

from foldlog._documents import KnewDocument, LineDocument, RunDocument, RunsDocument, StepDocument
from foldlog._figures.overview import counted_in, is_request
from foldlog._figures.prices import Prices
from foldlog._figures.sizes import view_tokens
from foldlog._figures.spending import spent_by
from foldlog._figures.stored import FiguresOfStore
from foldlog._figures.tables import Where
from foldlog._formats.record import dict_or_empty
from foldlog._formats.usage import begins_call, is_call
from foldlog._labels import label
from foldlog._values import parsed
from foldlog._words.gist import UNLIMITED, gist
from foldlog._words.safe_text import printable
from foldlog.eventstore import Action, CondensationSummary, Event, Message, Store
from foldlog.eventstore.inside import said
from foldlog.projections import View, Views, begins_reply, contains, intervals_kept

GIST = 160
_BEFORE = 40
"""Characters of a line, and of those before the first difference."""
_MANY = 2_000
"""From this number of steps on, those that are made again and again are not looked for in the other
run.
"""


class _Step(NamedTuple):
    """A step: what it says, as a hash; its event; and the version at which it was asked, or the
    model was called.
    """

    key: bytes
    line: LineDocument
    version: int
    is_redacted: bool


def compared_runs(store: Store, one: str, other: str, prices: Prices) -> RunsDocument:
    """Return two conversations side by side: what each has, the steps of both in one order, and
    what each was shown when they first differ, or at their end. Raises ``ConversationNotFound``,
    ``ConversationErased``, ``CorruptEvent``, ``KeyUnavailable``. Cost: the events of both, and two
    Views; the steps of one times those of the other that are the same, at worst.
    """
    runs = [_run(store, name, prices) for name in (one, other)]
    (document, steps), (other_document, other_steps) = runs
    keys, other_keys = ([step.key for step in each] for each in (steps, other_steps))
    same = _same_first(keys, other_keys)
    first = None
    if same < max(len(steps), len(other_steps)):
        one_first, other_first = (
            each[same].line if same < len(each) else None for each in (steps, other_steps)
        )
        first = one_first, other_first
        if one_first is not None and other_first is not None:
            first = _where_they_differ(store, (one, one_first), (other, other_first))
    versions = [each[same].version if same < len(each) else None for each in (steps, other_steps)]
    views = [
        _view(store, name, version) for name, version in zip((one, other), versions, strict=True)
    ]
    return RunsDocument(
        runs=(document, other_document),
        same_first=same,
        redacted_first=sum(step.is_redacted for step in steps[:same]),
        same=sum((_known(steps) & _known(other_steps)).values()),
        first_difference=first,
        knew=_told_apart(store, (one, other), (_knew(*views), _knew(*reversed(views)))),
        steps=tuple(_aligned(steps, other_steps)),
    )


def run_of(store: Store, name: str, prices: Prices) -> RunDocument:
    """Return what one conversation has, as ``compared_runs`` does."""
    return _run(store, name, prices)[0]


def _run(store: Store, name: str, prices: Prices) -> tuple[RunDocument, list[_Step]]:
    row = store.conversation(name)
    version = store.version(name)
    structural = store.query(name, lambda read: list(read.structural_events(0, version)))
    kept = intervals_kept(structural, version)
    counts_event = counted_in(structural, version)
    steps: list[_Step] = []
    counts: dict[str, Any] = dict.fromkeys(("requests", "replies"), 0)
    before: Event | None = None
    answer: LineDocument | None = None
    asked = 0
    for event in filter(counts_event, store.events(name, 0, version)):
        counts["requests"] += is_request(event)
        if begins_reply(event):
            if begins_call(event, before):
                asked = event.id
                counts["replies"] += 1
            before = event
        if not event.shown or not contains(kept, event.id):
            continue
        if is_request(event):
            answer = None
            steps.append(_step(event, event.id))
        elif is_call(event):
            steps.append(_step(event, asked))
        if _answers(event):
            answer = _line(event)
    figures = FiguresOfStore(store)
    ((_, one),) = figures.of([row])
    spent = spent_by(one.calls, prices) if one.is_sound else None
    called = sorted(
        figures.totals(Where(only=[name])).tools.items(), key=lambda tool: -tool[1].calls
    )
    tools = {tool: each.calls for tool, each in called if each.calls}
    counts |= {"calls": sum(tools.values()), "errors": one.errors}
    return RunDocument(
        conversation=name, version=version, spent=spent, tools=tools, answer=answer, **counts
    ), steps


def _answers(event: Event) -> bool:
    """Return whether the agent says something to the user: in a message, or with the call that ends
    OpenHands' runs.
    """
    if isinstance(event, Action):
        return event.tool == "finish" and bool(
            dict_or_empty(parsed(event.arguments)).get("message")
        )
    return isinstance(event, Message) and event.source == "agent" and bool(event.content)


def _step(event: Event, version: int) -> _Step:
    return _Step(_key(event), _line(event), version, event.redacted is not None)


def _known(steps: Iterable[_Step]) -> Counter[bytes]:
    return Counter(step.key for step in steps if not step.is_redacted)


def _same_first(some: Sequence[Any], others: Sequence[Any]) -> int:
    return sum(
        1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(some, others, strict=False))
    )


def _where_they_differ(
    store: Store, *named: tuple[str, LineDocument]
) -> tuple[LineDocument, LineDocument]:
    """Return two lines with the text around the first character that differs, of what is shown or
    else of all.
    """
    events = [next(iter(store.events(name, line.event, line.event + 1))) for name, line in named]
    texts = [gist(event, UNLIMITED) for event in events]
    if texts[0] == texts[1]:
        texts = [printable(_text(event), one_line=True) for event in events]
    start = max(0, _same_first(*texts) - _BEFORE)
    (_, one), (_, other) = named
    excerpts = [
        "…" * (start > 0) + text[start : start + GIST] + "…" * (len(text) > start + GIST)
        for text in texts
    ]
    return replace(one, gist=excerpts[0]), replace(other, gist=excerpts[1])


def _key(event: Event) -> bytes:
    """Return a hash of what an event says: equal for a call with the same arguments, whether as a
    text or as a map.
    """
    return blake2b(_text(event).encode("utf-8", "surrogatepass"), digest_size=16).digest()


def _text(event: Event) -> str:
    """Return what an event says as JSON."""
    match event:
        case Action(tool=tool, arguments=arguments):
            told: Any = (tool, parsed(arguments), event.source)
        case _:
            told = getattr(event, "content", None)
    return json.dumps(
        [type(event).__name__, told], sort_keys=True, ensure_ascii=False, default=said
    )


def _view(store: Store, name: str, version: int | None) -> View:
    if version is None:
        return Views(store).current(name)
    return Views(store).at(name, version)


def _knew(view: View, other: View) -> KnewDocument:
    """Return what a View shows, and which of it the other one does not, whatever its id there."""
    sent, theirs = ([each[place] for place in each.fit_positions] for each in (view, other))
    keys = {_key(event) for event in theirs}
    alone = (event for event in sent if _key(event) not in keys)
    return KnewDocument(
        version=view.version,
        events=len(sent),
        summaries=sum(isinstance(event, CondensationSummary) for event in sent),
        tokens=view_tokens(view),
        alone=tuple(map(_line, alone)),
    )


def _told_apart(
    store: Store, names: tuple[str, str], knew: tuple[KnewDocument, KnewDocument]
) -> tuple[KnewDocument, KnewDocument]:
    """Return what two runs were shown, with other parts of the texts that begin alike."""
    alone = tuple([*each.alone] for each in knew)
    for place, lines in enumerate(zip(*alone, strict=False)):
        one, other = lines
        if replace(one, event=0) == replace(other, event=0) and min(one.event, other.event) >= 0:
            named = zip(names, lines, strict=True)
            alone[0][place], alone[1][place] = _where_they_differ(store, *named)
    first, second = knew
    return replace(first, alone=tuple(alone[0])), replace(second, alone=tuple(alone[1]))


def _line(event: Event) -> LineDocument:
    return LineDocument(event=event.id, kind=label(event), gist=gist(event, GIST))


def _aligned(steps: Sequence[_Step], others: Sequence[_Step]) -> Iterator[StepDocument]:
    """Yield the steps of both in one order, each once where both have it. Of requests in other
    words, those of the same number are beside each other.
    """
    matcher = SequenceMatcher(
        None, _places(steps, others), _places(others, steps), autojunk=len(others) > _MANY
    )
    for tag, start, stop, other_start, other_stop in matcher.get_opcodes():
        mine = steps[start:stop]
        theirs = others[other_start:other_stop]
        alone = chain(zip(mine, repeat(None)), zip(repeat(None), theirs))
        for one, two in zip(mine, theirs, strict=True) if tag == "equal" else alone:
            if one and two and one.key == two.key:
                yield StepDocument.of(one.line, other_event=two.line.event)
                continue
            if one:
                yield StepDocument.of(one.line, other_event=None)
            if two:
                yield StepDocument.of(two.line, event=None, other_event=two.line.event)


def _places(steps: Sequence[_Step], others: Sequence[_Step]) -> list[bytes | int]:
    """Return by what each step is aligned: by what it says; a request that the other run lacks, by
    its number.
    """
    theirs = {step.key for step in others}
    numbers = accumulate(step.line.kind == "user" for step in steps)
    return [
        number if step.line.kind == "user" and step.key not in theirs else step.key
        for step, number in zip(steps, numbers, strict=True)
    ]
