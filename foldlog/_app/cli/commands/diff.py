"""``foldlog diff``: show what changed between two Views of a conversation, or where two forks
diverge.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

from foldlog._app.cli import terminal
from foldlog._app.cli.exit_status import Refused
from foldlog._app.cli.hints import prices_hint
from foldlog._app.cli.options import (
    WholeNumber,
    argument,
    conversation_argument,
    prices_option,
    store_options,
)
from foldlog._app.cli.printing.difference import difference_document, show_difference
from foldlog._app.cli.printing.runs import show_divergence, show_runs
from foldlog._app.cli.stores import open_existing, resolve
from foldlog._reports.answers.runs import DivergenceDocument, RunsDocument
from foldlog._reports.divergence import common_past, find_divergence
from foldlog._reports.dropped import condensations, dropped_document, dropped_in
from foldlog._reports.words.reasons import requests_before
from foldlog.projections import Views

_DIGITS_MAX = 18
"""No version has more digits."""


@conversation_argument
@argument(
    "before",
    "A",
    "With B: an earlier version. Without B: another conversation.",
    required=False,
    show_default="the newest condensation",
)
@argument(
    "after",
    "B",
    "A later version: 0 to the number of events.",
    type=WholeNumber(min=0),
    required=False,
)
@prices_option
@store_options
def run(
    conversation: str,
    before: str | None,
    after: int | None,
    prices: Path | None,
    db: str,
) -> None:
    """Show which events entered or left the View of a conversation between two versions, and which
    summaries replaced events.

    Without versions, show what the newest condensation dropped.

    With two conversations, show both runs side by side: tool calls, tokens, cost and last answers.
    Below the figures, show the first event that differs, and the later events of each run. If the
    runs share no events, show three things instead: the first difference, what each model saw
    there, and the requests and calls that only one of the runs has.

    Example: foldlog diff tidewatch 90 100
    """
    if before is None:
        _show_newest_condensation(conversation, db)
    elif after is None:
        other_conversation = before
        _show_conversations(conversation, other_conversation, prices, db)
    else:
        _show_versions(conversation, _version(before), after, db)


def _version(text: str) -> int:
    """Return the version that the user typed. Raises ``Refused``."""
    if not (text.isascii() and text.isdigit() and len(text) <= _DIGITS_MAX):
        raise Refused(
            f"{text!r} is not a version; name two versions of a conversation, or two "
            f"conversations (ID and OTHER)"
        )
    return int(text)


def _show_conversations(conversation: str, other: str, prices: Path | None, db: str) -> None:
    """Show two conversations side by side."""
    from foldlog._reports.figures.prices import Prices
    from foldlog._reports.runs import compared_runs

    with open_existing(db) as store:
        conversation = resolve(store, conversation)
        try:
            other = resolve(store, other)
        except Refused as error:
            if other.isdigit():
                raise Refused(
                    f"{error}; to compare two versions, name the second version too:"
                    " 'foldlog diff ID A B'"
                ) from error
            raise
        shared = common_past(store, conversation, other)
        document: DivergenceDocument | RunsDocument
        if shared is None:
            document = compared_runs(store, conversation, other, Prices(prices))
        else:
            document = find_divergence(store, conversation, other, shared, Prices(prices))
        if isinstance(document, RunsDocument):
            show = partial(show_runs, document)
        else:
            show = partial(show_divergence, store, document)
        terminal.answer(document, show)
        has_unknown_cost = any(
            run.spent and run.spent.cost is None and run.spent.prompt_tokens
            for run in document.runs
        )
        if has_unknown_cost and not terminal.prints_json():
            terminal.note(f"a cost is not known, because a model has no price; {prices_hint()}")


def _show_newest_condensation(conversation: str, db: str) -> None:
    """Show what the newest condensation dropped. Raises ``Refused`` if there is none."""
    with open_existing(db) as store:
        conversation = resolve(store, conversation)
        condensations_made = condensations(store, conversation)
    if not condensations_made:
        raise Refused(
            f"{conversation!r} has no condensation that forgot anything and was not taken back; "
            f"name two versions, or two conversations"
        )
    newest = condensations_made[-1].id
    _show_versions(conversation, newest, newest + 1, db)


def _show_versions(conversation: str, before: int, after: int, db: str) -> None:
    """Show what changed between two Views."""
    with open_existing(db) as store:
        conversation = resolve(store, conversation)
        views = Views(store)
        difference = views.difference(conversation, before, after)
        dropped = [*map(dropped_document, dropped_in(store, conversation, before, after))]
        ids = [summarized.condensation.id for summarized in difference.summarized]
        requests = {event_id: requests_before(store, conversation, event_id) for event_id in ids}
    show = partial(show_difference, conversation, difference, requests, dropped)
    terminal.answer(difference_document(conversation, difference, dropped), show)
