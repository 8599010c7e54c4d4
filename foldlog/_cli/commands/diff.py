"""``foldlog diff``: show what changed between two Views of a conversation, or where two forks diverge."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import chain, zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from msgspec.structs import replace

from foldlog._cli import terminal
from foldlog._cli.events import LABEL_COLUMNS, event_line
from foldlog._cli.hints import prices_hint
from foldlog._cli.options import DEFAULT_DB, AsJson, ConversationId, Db, PricesFile
from foldlog._cli.outcome import Refused
from foldlog._cli.stores import open_existing, resolved
from foldlog._cli.tables import COST, Column, print_rows
from foldlog._documents import (
    DifferenceDocument,
    DivergenceDocument,
    DroppedDocument,
    LineDocument,
    RunDocument,
    RunsDocument,
    SpentDocument,
    SummarizedDocument,
    SummaryDocument,
)
from foldlog._reports.dropped import dropped_document, dropped_in
from foldlog._words.dropped import dropped_words
from foldlog._words.event_json import event_document
from foldlog._words.gist import count, number_words, spent_words
from foldlog._words.reasons import because, requests_before
from foldlog.eventstore import CondensationRequest, Event, Store
from foldlog.projections import Difference, Views

if TYPE_CHECKING:
    from foldlog._reports.prices import Prices


def run(
    conversation: ConversationId,
    before: Annotated[
        str, typer.Argument(metavar="A", help="A version; or, without B, another conversation.", show_default=False)
    ],
    after: Annotated[
        int | None, typer.Argument(metavar="B", min=0, help="A later version.", show_default=False)
    ] = None,
    prices: PricesFile = None,
    db: Db = DEFAULT_DB,
    as_json: AsJson = False,
) -> None:
    """Show which events entered the View of a conversation between two versions, which left it, and their summaries.

    With two conversations, show both runs side by side: calls of each tool, tokens, cost, last answers. Then show
    the events of both since their common past, and the first one that differs. Without a common past, show the first
    difference, what each model was shown then, and the later requests and calls that only one of them has.

    Example: foldlog diff tidewatch 90 100
    """
    if after is None:
        _conversations(conversation, before, prices, db, as_json=as_json)
    else:
        _versions(conversation, _version(before), after, db)


def _version(given: str) -> int:
    if not (given.isascii() and given.isdigit()):
        raise Refused(
            f"{given!r} is not a version; give two versions of a conversation, or two conversations without B"
        )
    return int(given)


def _conversations(conversation: str, other: str, prices: Path | None, db: str, *, as_json: bool) -> None:
    from foldlog._reports.prices import Prices
    from foldlog._reports.runs import compared_runs

    with open_existing(db) as store:
        conversation = resolved(store, conversation)
        try:
            other = resolved(store, other)
        except Refused as error:
            if other.isdigit():
                raise Refused(
                    f"{error}; to compare two versions, give a second version: 'foldlog diff ID A B'"
                ) from error
            raise
        shared = _common_past(store, conversation, other)
        found: DivergenceDocument | RunsDocument
        if shared is None:
            found = compared_runs(store, conversation, other, Prices(prices))
        else:
            found = _divergence(store, conversation, other, shared, Prices(prices))
        show = (
            partial(_show_runs, found) if isinstance(found, RunsDocument) else partial(_show_divergence, store, found)
        )
        terminal.answer(found, show)
        spent = [run.spent for run in found.runs if run.spent]
        if not as_json and any(one.cost is None and one.prompt_tokens for one in spent):
            terminal.note(f"a cost is not known, since a model has no price: {prices_hint()}")


def _versions(conversation: str, before: int, after: int, db: str) -> None:
    with open_existing(db) as store:
        conversation = resolved(store, conversation)
        views = Views(store)
        difference = views.difference(conversation, before, after)
        dropped = [*map(dropped_document, dropped_in(store, views, conversation, before, after))]
        by = [one.condensation.id for one in difference.summarized]
        requests = {one: requests_before(store, conversation, one) for one in by}
    show = partial(_show, conversation, difference, requests, dropped)
    terminal.answer(_document(conversation, difference, dropped), show)


def _document(conversation: str, difference: Difference, dropped: Sequence[DroppedDocument]) -> DifferenceDocument:
    return DifferenceDocument.of(
        difference,
        conversation=conversation,
        dropped=tuple(dropped),
        entered=_ids(difference.entered),
        left=_ids(difference.left),
        summarized=tuple(
            SummarizedDocument(
                condensation=one.condensation.id,
                summary=SummaryDocument(event=one.summary.id, text=one.summary.content),
                events=_ids(one.events),
            )
            for one in difference.summarized
        ),
    )


def _ids(events: Sequence[Event]) -> tuple[int, ...]:
    return tuple(event.id for event in events)


def _show(
    conversation: str,
    difference: Difference,
    requests: Mapping[int, Sequence[CondensationRequest]],
    dropped: Sequence[DroppedDocument],
) -> None:
    name = terminal.typed_id(conversation)
    entered, left = count(len(difference.entered), "event"), count(len(difference.left), "event")
    versions = f"from version {difference.before:,} to {difference.after:,}"
    terminal.say((f"{name} {versions}: {entered} entered the View, {left} left it", "bold"), wraps=True)
    lines = terminal.PrintedLines()
    for sign, events, colour in (("-", difference.left, "red"), ("+", difference.entered, "green")):
        for event in events:
            lines.write((f"{sign}{event_line(event, lines.width)}", colour))
    for one in difference.summarized:
        gone = count(len(one.events), "event")
        why = because(one.condensation, requests.get(one.condensation.id, ()))
        said = f"condensation {one.condensation.id}{f', {why},' if why else ''} put a summary in the place of {gone}:"
        terminal.say((said, "dim"), wraps=True)
        terminal.print_summary(one.summary.content, 8)
    for found in dropped:
        terminal.say((dropped_words(found), "dim"), wraps=True)


# -- two conversations with a common past ------------------------------------------------------------------------------


def _divergence(store: Store, one: str, other: str, shared: int, prices: Prices) -> DivergenceDocument:
    """Find the first event that differs: events below ``shared`` are stored once for both; those from there to it were
    recorded in each of them and are equal except for their times. Cost: the events of both.
    """
    from foldlog._reports.runs import run_of

    versions = store.version(one), store.version(other)
    logs = (store.log(name, shared, stop) for name, stop in zip((one, other), versions, strict=True))
    pairs = enumerate(zip_longest(*logs), start=shared)
    differing = (each for each in pairs if None in each[1] or not _equal(*(one.event for one in each[1])))
    place, pair = next(differing, (None, (None, None)))
    event, other_event = (None if each is None else event_document(each.event, each.recorded_at) for each in pair)
    return DivergenceDocument(
        conversation=one,
        version=versions[0],
        other=other,
        other_version=versions[1],
        common_past=shared,
        first_divergent_event=place,
        event=event,
        other_event=other_event,
        runs=(run_of(store, one, prices), run_of(store, other, prices)),
    )


def _equal(one: Event, other: Event) -> bool:
    """Return whether two events are equal except for their times: a replay has the times of the replay."""
    return replace(one, timestamp=None) == replace(other, timestamp=None)


def _show_divergence(store: Store, found: DivergenceDocument) -> None:
    """Print the divergence for people, and the events of each conversation from the first divergent one on."""
    first, names = found.first_divergent_event, (found.conversation, found.other)
    one, other = map(terminal.typed_id, names)
    said = f"{one} and {other} share {count(found.common_past, 'event') if found.common_past else 'no stored event'}"
    if first is None:
        equal, end = found.version - found.common_past, "neither has another event"
    else:
        equal, end = first - found.common_past, f"the first divergent event is {first:,}"
    said += f", {'then' if found.common_past else 'but'} have {count(equal, 'equal event')} each" if equal else ""
    terminal.say((f"{said}; {end}", "bold"))
    if first is None:
        return
    _print_table(found.runs)
    terminal.print_heading("the events that differ")
    lines = terminal.PrintedLines()
    for sign, name, shown, stop, colour in zip(
        "-+", names, (one, other), (found.version, found.other_version), ("red", "green"), strict=True
    ):
        lines.write((f"{sign} {shown}: {count(stop - first, 'event')} from there on", "bold"))
        for _, event in store.log(name, first, stop):
            lines.write((f"{sign}{event_line(event, lines.width)}", colour))


# -- two runs without one ----------------------------------------------------------------------------------------------


def _show_runs(found: RunsDocument) -> None:
    """Print two runs side by side, then the first difference, what each model was shown then, and the steps from there
    on.
    """
    one, other = (terminal.typed_id(run.conversation) for run in found.runs)
    terminal.say((f"{one} and {other} share no past; {_same_words(found)}", "bold"))
    _print_table(found.runs, ("requests and calls in both", f"{found.same:,}", f"{found.same:,}"))
    lines = terminal.PrintedLines()
    if found.first_difference is None or found.knew is None:
        lines.write(("no request and no call differs", ""))
        return
    terminal.print_heading("the first difference")
    for sign, name, line, colour in zip("-+", (one, other), found.first_difference, _COLOURS, strict=True):
        told = f" {name} ends" if line is None else _line(line)
        lines.write((f"{sign}{told}", colour))
    for sign, name, without, knew, colour in zip("-+", (one, other), (other, one), found.knew, _COLOURS, strict=True):
        if not knew.events:
            continue
        alone = f", {without} was not shown {len(knew.alone):,} of these:" if knew.alone else ""
        shown = f"{count(knew.events, 'event')}, ≈ {knew.tokens:,} tokens"
        terminal.print_heading(f"{name} was shown {shown} at version {knew.version:,}{alone}")
        for line in knew.alone:
            lines.write((f"{sign}{_line(line)}", colour))
    terminal.print_heading("requests and calls from there on")
    firsts = [
        run.version if line is None else line.event
        for run, line in zip(found.runs, found.first_difference, strict=True)
    ]
    same = 0
    for step in found.steps:
        ids = step.event, step.other_event
        if not any(each is not None and each >= first for each, first in zip(ids, firsts, strict=True)):
            continue
        if None not in ids:
            same += 1
            continue
        _write_same(lines, same)
        same = 0
        sign, colour = ("-", "red") if ids[1] is None else ("+", "green")
        numbers = "".join(f"{'' if each is None else each:>7}" for each in ids)
        lines.write((f"{sign}{numbers}  {step.kind:<{LABEL_COLUMNS}}{step.gist}", colour))
    _write_same(lines, same)


def _print_table(runs: Sequence[RunDocument], *in_both: tuple[str, str, str]) -> None:
    """Print what each of two runs has side by side, and the answers to their last requests."""
    rows = [
        (name, *(number_words(getattr(run, name)) for run in runs))
        for name in ("requests", "replies", "calls", "errors")
    ]
    rows += in_both
    for tool in list(dict.fromkeys(chain(*(run.tools for run in runs))))[:_TOOLS_MAX]:
        called = (f"{run.tools.get(tool, 0):,}" for run in runs)
        rows.append((f"calls of {tool}", *called))
    for name in ("prompt_tokens", "completion_tokens"):
        tokens = (number_words(getattr(run.spent, name, None)) for run in runs)
        rows.append((name.replace("_", " "), *tokens))
    costs = [run.spent or SpentDocument() for run in runs]
    if any(each.condenser_calls for each in costs):
        rows.insert(2, ("replies of condensers' models", *(f"{each.condenser_calls:,}" for each in costs)))
    rows.append(("cost", *map(spent_words, costs)))
    names = (terminal.typed_id(run.conversation) for run in runs)
    print_rows((Column(""), *(Column(name, "right", 12, COST.marks) for name in names)), rows)
    lines = terminal.PrintedLines()
    terminal.print_heading("the answers to the last requests")
    for sign, run, colour in zip("-+", runs, _COLOURS, strict=True):
        lines.write((f"{sign}{' none' if run.answer is None else _line(run.answer)}", colour))


def _same_words(found: RunsDocument) -> str:
    """Say how many of the first requests and calls of two runs say the same, and of how many nothing is known."""
    same, redacted = found.same_first, found.redacted_first
    if not same:
        return f"their first requests differ; {count(found.same, 'request or call', 'requests and calls')} in both"
    if redacted:
        first = f"{same - redacted:,} of their first {same:,} requests and calls say the same"
        return f"{first}; nothing is known of those that are redacted: {redacted:,}"
    return f"their first {f'{same:,} requests and calls say' if same > 1 else 'request or call says'} the same"


def _write_same(lines: terminal.PrintedLines, number: int) -> None:
    if number:
        lines.write((f"{'':>17}{count(number, 'request or call', 'requests and calls')} in both", "dim"))


_COLOURS, _TOOLS_MAX, _LOOKED_AT = ("red", "green"), 10, 50


def _line(line: LineDocument) -> str:
    return f"{line.event:>7}  {line.kind:<{LABEL_COLUMNS}}{line.gist}"


def _common_past(store: Store, one: str, other: str) -> int | None:
    """Return the version up to which two conversations share stored events; 0 if they only begin with an equal event of
    the same time, as two imports of one source do; None for two runs.
    """
    reach, other_reach = _reach(store, one), _reach(store, other)
    shared = [min(reach[name], other_reach[name]) for name in reach.keys() & other_reach.keys()]
    first, other_first = _first_with_a_time(store, one), _first_with_a_time(store, other)
    return max(shared, default=0 if first is not None and first == other_first else None)


def _first_with_a_time(store: Store, name: str) -> Event | None:
    events = store.events(name, 0, _LOOKED_AT)
    return next((one for one in events if one.timestamp or (one.origin is not None and one.origin.time)), None)


def _reach(store: Store, conversation: str) -> dict[str, int]:
    """Return the conversation and its ancestors, each with the version up to which its events belong to it."""
    reach = {border.parent: border.version for border in store.query(conversation, lambda read: read.lineage)}
    return {**reach, conversation: store.version(conversation)}
