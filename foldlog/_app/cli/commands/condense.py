"""``foldlog condense``: request a condensation and show what was forgotten."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from msgspec.structs import replace

from foldlog._app.cli import terminal
from foldlog._app.cli.agent_model import (
    agent_model_option,
    counter_beside,
    load_condenser_for,
    named_model,
)
from foldlog._app.cli.options import conversation_argument, flag, option, store_options
from foldlog._app.cli.printing.condensation import (
    Made,
    condensed_document,
    show_condensation,
    spending_of,
)
from foldlog._app.cli.stores import open_existing, require_id
from foldlog._history.histories import Histories
from foldlog._imports.redacting import source_files
from foldlog._reports.answers.views import CondensedDocument
from foldlog._reports.words.reasons import requests_before
from foldlog.condensers import Condensation, NoCondensationAvailable, Report
from foldlog.condensers.models.estimate import ESTIMATE, tokens_of
from foldlog.eventstore import CondensationRequest

_REASON = "foldlog condense"
"""The reason of the request that the command appends."""


@conversation_argument
@option(
    "--config",
    "FILE",
    "A TOML file with [condenser].",
    show_default="the default condenser, which needs no model",
)
@flag("--dry-run", "Append nothing. A condenser with a model still calls the model.")
@agent_model_option
@store_options
def run(
    conversation: str,
    config: Path | None,
    dry_run: bool,
    agent: str | None,
    db: str,
) -> None:
    """Request a condensation of a conversation, run a condenser, and show what was forgotten and
    why.

    Without a file, the default condenser is used. The default condenser needs no model and writes a
    digest. To forget without a summary, name a file with the two lines [condenser] and type =
    "conversation_window".

    The exit status is 1 if nothing was forgotten: the model returned no summary, or no event can be
    forgotten.

    Example: foldlog condense tidewatch --dry-run
    """
    with open_existing(db) as store:
        require_id(store, conversation)
        model = named_model(agent)
        counter = counter_beside(model)
        if config is None:
            condenser = None
        else:
            condenser = load_condenser_for(config, model)
        histories = Histories(store, condenser=condenser, agent_llm=model)
        try:
            with (
                terminal.working("condensing"),
                terminal.without_notes_of("foldlog.condensation.declined"),
            ):
                make = _preview if dry_run else _condense
                outcome = make(histories, conversation)
        except NoCondensationAvailable as error:
            _answer_declined(conversation, dry_run, str(error), error.reports)
            return
        if outcome is None:
            problem = f"the condenser {histories.condenser.type!r} did not condense"
            _answer_declined(conversation, dry_run, problem, ())
            return
        with terminal.working("counting tokens"):
            tokens = (
                tokens_of(outcome.before, counter or ESTIMATE),
                tokens_of(outcome.after, counter or ESTIMATE),
            )
        if not dry_run and source_files(store, [conversation]):
            terminal.note(
                "'foldlog import' will add new records of the source to a fork, because this "
                "conversation now has a condensation"
            )
    tokens_before, tokens_after = tokens
    if tokens_before is not None and tokens_after is not None and tokens_after > tokens_before:
        about = "" if counter else "≈ "
        grew = "would grow" if dry_run else "grew"
        sizes = f"from {about}{tokens_before:,} to {about}{tokens_after:,} tokens"
        terminal.note(f"the View {grew} {sizes}")
    document = condensed_document(conversation, dry_run, outcome, tokens, counter)
    terminal.answer(
        document, lambda: show_condensation(conversation, dry_run, outcome, tokens, counter)
    )


def _condense(histories: Histories, conversation: str) -> Made | None:
    """Condense a conversation. Return None if the condenser did not condense."""
    result = histories[conversation].condense(_REASON)
    if not isinstance(result, Condensation):
        return None
    action = result.action
    views = histories.views
    before = views.at(conversation, action.id)
    after = views.at(conversation, action.id + 1)
    return Made(action, before, after, requests_before(histories.store, conversation, action.id))


def _preview(histories: Histories, conversation: str) -> Made | None:
    """Run ``_condense`` in memory. Nothing is appended to the store."""
    histories._handler.check_handles_requests()
    view = histories.views.current(conversation)
    request = CondensationRequest(id=view.version, reason=_REASON)
    before = view.then((request,))
    result, _ = histories._handler.preview(before)
    if not isinstance(result, Condensation):
        return None
    action = replace(result.action, id=before.version)
    requests = (*requests_before(histories.store, conversation, view.version), request)
    return Made(action, before, before.then((action,)), requests)


def _answer_declined(
    conversation: str, dry_run: bool, problem: str, reports: Sequence[Report]
) -> None:
    """Print why nothing was forgotten, as a finding."""
    document = CondensedDocument(
        conversation=conversation,
        dry_run=dry_run,
        outcome="declined",
        problem=problem,
        model=spending_of(reports),
    )
    terminal.answer(document, ())
    terminal.warn(f"the View of conversation {conversation!r} stays as it is: {problem}")
