"""``foldlog why``: explain why an event is shown or not."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from foldlog._app.cli import terminal
from foldlog._app.cli.exit_status import Refused
from foldlog._app.cli.hints import command
from foldlog._app.cli.options import (
    EVENT_SETTINGS,
    argument,
    conversation_argument,
    option,
    store_options,
    with_children_option,
)
from foldlog._app.cli.printing.events import event_id_in
from foldlog._app.cli.printing.explanation import answer_about_task, show_why, why_document
from foldlog._app.cli.stores import open_existing, resolve
from foldlog._app.coding_agents.refreshing import import_again
from foldlog._imports.compacting import compacting
from foldlog._reports.answers.views import DroppedTermDocument
from foldlog._reports.as_sent import why_sent
from foldlog._reports.dropped import dropped_by
from foldlog._reports.facts import Fact, fact
from foldlog._reports.recall_score import event_terms
from foldlog._reports.v0_ids import in_own_ids
from foldlog._reports.words.gist import id_words
from foldlog._reports.words.reasons import requests_before
from foldlog.eventstore import (
    Action,
    Annotation,
    CondensationAction,
    Event,
    InvalidArgument,
    Store,
)
from foldlog.projections import NoSuchEvent, Views, Why
from foldlog.projections.call_states import is_approval

SETTINGS = EVENT_SETTINGS


@conversation_argument
@argument(
    "event",
    "EVENT",
    "The id of an event, such as 17, or S260 for the summary of condensation 260; or "
    "some words of the event. Put a number that is not an id in double quotes: "
    "'\"4711\"'.",
)
@option("--at", "V", "Explain the View of this version.", show_default="the newest")
@with_children_option
@store_options
def run(
    conversation: str,
    event: str,
    at: int | None,
    with_children: bool,
    db: str,
) -> None:
    """Explain why an event is shown to the model or not: what forgot the event, when, and which
    summary replaces the event.

    With words instead of an event, show whether the agent still knows the words. The answer names
    the event or summary in the prompt, or the condensation that forgot the words. S260 is the
    summary of condensation 260. In JSON, S260 has the id -(260 + 2) = -262.

    With --with-children and words, show which agent of the task has the words, from whom, and where
    they were lost. With a call that began a sub-agent, show what the call did not give, and what
    the result did not return.

    Example: foldlog why tidewatch 17
    """
    with open_existing(db) as store:
        conversation, missing = _import_again(store, resolve(store, conversation))
        views = Views(store)
        event_id = event_id_in(event)
        if with_children:
            if at is not None:
                raise Refused("--with-children answers for the newest version; leave out --at")
            about = event if event_id is None else event_id
            try:
                answer_about_task(store, views, conversation, about)
            except InvalidArgument as error:
                raise Refused(f"{error}{_as_words(event)}") from error
            return
        matching_fact = None
        if event_id is None:
            matching_fact = _fact(store, views, conversation, event, at)
            event_id = _telling(matching_fact)
        try:
            answer = why_sent(store, views, conversation, event_id, at)
        except NoSuchEvent as error:
            raise Refused(_no_event(error, event)) from error
        answer = replace(answer, event=in_own_ids(store, conversation)(answer.event))
        by = answer.by
        if isinstance(by, CondensationAction):
            requests = requests_before(store, conversation, by.id)
        else:
            requests = ()
        dropped = _terms_dropped(store, views, conversation, answer)
        approvals = _approvals(store, conversation, answer.event)
    document = replace(
        why_document(conversation, answer, requests, dropped, matching_fact),
        approvals=tuple(approval.id for approval in approvals),
        compacting=missing,
    )
    terminal.answer(document, lambda: show_why(document, answer, approvals))


def _no_event(error: NoSuchEvent, typed: str) -> str:
    """Say which events there are."""
    if not error.version:
        return str(error)
    return (
        f"conversation {error.conversation!r} has no event {id_words(error.event_id)}; its events"
        f" are 0 to {error.version - 1}, and S5 means the summary of condensation 5"
        f"{_as_words(typed)}"
    )


def _as_words(typed: str) -> str:
    """Say how to ask about a number as a text."""
    return f"""; to ask about the text {typed}, type '"{typed}"'""" if typed.isdigit() else ""


def _import_again(store: Store, conversation: str) -> tuple[str, str | None]:
    """Import the file of a conversation again, if the file exists and has grown. Return the
    conversation's id. If the agent's program has begun a compaction, but has not written it to the
    transcript yet, also return the time when the compaction began.
    """
    conversation, problem = import_again(store, conversation)
    if problem:
        terminal.note(f"the imported file of {conversation!r} cannot be imported again: {problem}")
    return conversation, compacting(store, conversation)


def _fact(store: Store, views: Views, conversation: str, words: str, at: int | None) -> Fact:
    """Return what the agent knows of some words. Raises ``Refused`` if no event has them."""
    if words.startswith("-"):
        raise Refused(
            f"{words!r} is neither an option nor an event; use the id of an event, or some words "
            f"of it"
        )
    matching_fact = fact(store, views, conversation, words, at)
    if not matching_fact.events and not matching_fact.others:
        raise Refused(
            f"no event of {conversation!r} has the words {words!r};"
            f" '{command('log', conversation)}' shows all events"
        )
    return matching_fact


def _telling(matching_fact: Fact) -> int:
    """Return the first event that is in the View and has the words, or else the last event that has
    the words.
    """
    if matching_fact.known_by:
        return matching_fact.known_by[0]
    return (matching_fact.events or matching_fact.others)[-1]


def _approvals(store: Store, conversation: str, event: Event) -> Sequence[Annotation]:
    """Return the approvals that were asked and decided about a call."""
    if not isinstance(event, Action) or event.id < 0:
        return ()
    later = store.events(conversation, event.id)
    return [approval for approval in filter(is_approval, later) if approval.cause == event.id]


def _terms_dropped(
    store: Store, views: Views, conversation: str, answer: Why
) -> tuple[DroppedTermDocument, ...]:
    """Return the terms that were lost with a forgotten event."""
    if answer.fate != "forgotten" or not isinstance(answer.by, CondensationAction):
        return ()
    of_event = event_terms(answer.event)
    drop = dropped_by(store, views, conversation, answer.by.id)
    if drop:
        return tuple(term for term in drop.terms if term.term in of_event)
    return ()
