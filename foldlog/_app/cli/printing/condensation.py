"""Print a condensation for people, and make its document."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from foldlog._app.cli import terminal
from foldlog._app.cli.agent_model import counted_words
from foldlog._app.cli.printing.events import interval_words
from foldlog._reports.answers.views import (
    CondensedDocument,
    SizesDocument,
    SpendingDocument,
    SummaryDocument,
)
from foldlog._reports.words.gist import cost_words, count, events_and_summaries, id_words
from foldlog._reports.words.reasons import because
from foldlog.condensers import (
    LLM,
    Report,
    Usage,
    model_of,
    on_a_model,
    reports_of,
)
from foldlog.eventstore import (
    CondensationAction,
    CondensationRequest,
    CondensationSummary,
    summary_id,
)
from foldlog.eventstore.errors import install_command
from foldlog.projections import View

Sizes = tuple[int | None, int | None]
"""The tokens of the Views before and after a condensation, counted by a model or estimated. If the
tokens cannot be counted, the numbers are None.
"""


class Made(NamedTuple):
    """A condensation, the Views before and after it, and the requests that it answered."""

    action: CondensationAction
    before: View
    after: View
    requests: Sequence[CondensationRequest]

    @property
    def summary(self) -> tuple[int, CondensationSummary] | None:
        """Return the place of its summary in the View, and the summary, or None."""
        for index, event in enumerate(self.after):
            if isinstance(event, CondensationSummary) and event.id == summary_id(self.action.id):
                return index, event
        return None


def spending_of(reports: Sequence[Report]) -> SpendingDocument:
    """Return what the calls of the condenser's model cost."""
    llm_reports = on_a_model(reports)
    used = Usage.of(reports)
    return SpendingDocument(
        models=tuple(dict.fromkeys(map(model_of, llm_reports))),
        calls=used.attempts,
        failed=sum("failure" in report for report in llm_reports),
        tokens=used.usage["total_tokens"],
        cost=used.cost,
        latency_s=used.latency_s,
    )


def _tokens(tokens: Sizes, counter: LLM | None) -> str:
    """Return the tokens before and after as text."""
    if None in tokens:
        return "could not be counted"
    if counter is None:
        return f"≈ {tokens[0]:,} → ≈ {tokens[1]:,}; to count them: {install_command('llm')}"
    return f"{tokens[0]:,} → {tokens[1]:,}, {counted_words(counter)}"


def show_condensation(
    conversation: str, dry_run: bool, outcome: Made, tokens: Sizes, counter: LLM | None
) -> None:
    """Print why the condenser acted, what it forgot, and what stands instead."""
    action, before, after, requests = outcome
    intervals, summaries = action.forgotten
    condenser = action.metadata.get("condenser", "one without a name")
    name = terminal.typed_id(conversation)
    forgotten = sum(last - first + 1 for first, last in intervals)
    forgot = events_and_summaries(forgotten, len(summaries)) or "nothing"
    ids = f" ({interval_words(intervals)})" if intervals else ""
    rows = [
        ("why", because(action, requests)),
        ("forgot", f"{forgot}{ids}"),
        ("View", f"{count(len(before), 'event')} → {len(after):,}"),
        ("tokens", _tokens(tokens, counter)),
        ("cost", _cost(spending_of(reports_of(action)))),
    ]
    instead = "no summary; the log keeps the events"
    summary_text = None
    if outcome.summary is not None:
        index, summary_event = outcome.summary
        summary_text = summary_event.content
        instead = f"summary {id_words(summary_event.id)}, at index {index} of the View:"
    rows.append(("instead", instead))
    what = "a condensation that was not appended" if dry_run else f"condensation {action.id}"
    terminal.say_wrapped((f"{name}: {what}, by the condenser {condenser}", "bold"))
    for heading, text in rows:
        terminal.say_beside((f"  {heading:<9}", "dim"), text)
    if summary_text is not None:
        terminal.print_summary(summary_text, 11)


def _cost(spent: SpendingDocument) -> str:
    """Return what a condenser's model cost as text."""
    if not spent.calls:
        return "nothing: no model was called"
    price = "price unknown" if spent.cost is None else cost_words(spent.cost)
    calls = f"{count(spent.calls, 'call')} of {', '.join(spent.models)}"
    failed = f", {spent.failed} unusable" if spent.failed else ""
    return f"{price}: {calls}{failed}, {count(spent.tokens, 'token')}, {spent.latency_s:.1f} s"


def condensed_document(
    conversation: str, dry_run: bool, outcome: Made, tokens: Sizes, counter: LLM | None
) -> CondensedDocument:
    """Return the document of a condensation. Estimated tokens are left out."""
    action = outcome.action
    summary = None
    if outcome.summary is not None:
        index, summary_event = outcome.summary
        summary = SummaryDocument(
            event=summary_event.id, position=index, text=summary_event.content
        )
    before, after = tokens
    counted = None
    if counter is not None and before is not None and after is not None:
        counted = SizesDocument(before=before, after=after, counted_as=counter.tokenizer)
    return CondensedDocument(
        conversation=conversation,
        dry_run=dry_run,
        outcome=action.metadata.get("outcome", "condensed"),
        event=action.id,
        condenser=action.metadata.get("condenser"),
        reason=action.metadata.get("reason"),
        forgotten=tuple(action.forgotten.intervals),
        forgotten_summaries=tuple(action.forgotten.summaries),
        summary=summary,
        events=SizesDocument(before=len(outcome.before), after=len(outcome.after)),
        tokens=counted,
        model=spending_of(reports_of(action)),
        metadata=action.metadata,
    )
