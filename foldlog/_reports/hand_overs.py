"""What the calls that began the sub-agents of a task gave, and what came back."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import takewhile
from math import inf

from msgspec.structs import replace

from foldlog._reports.answers.views import (
    DroppedTermDocument,
    FactDocument,
    HandOverDocument,
    HandOversDocument,
)
from foldlog._reports.dropped import terms_not_passed_on
from foldlog._reports.facts import Fact, fact
from foldlog._reports.figures.agent_trees import Trees
from foldlog._reports.search.searching import SearchTerms, events_with
from foldlog._reports.sub_agents import BeginningCall, calls_of_children
from foldlog._reports.words.gist import id_words
from foldlog._reports.words.texts import text_of
from foldlog.eventstore import CondensationAction, InvalidArgument, Store
from foldlog.projections import Views, begins_reply

_NAMED = 8
"""The maximum number of terms that a sentence names."""
_NOT_THERE = "no event has it"


def hand_overs(
    store: Store, views: Views, trees: Trees, conversation: str, about: str | int
) -> HandOversDocument:
    """Answer about words for a conversation and all its sub-agents, or about a call for the
    sub-agents that it began. Raises ``InvalidArgument`` if the call began none.

    Cost: about words, the function reads the stored bytes of all agents, and the events of agents
    that have sub-agents. About a call, it reads the events of the conversation and the sub-agents.
    """
    if isinstance(about, str):
        answers = _about_words(store, views, trees, conversation, about)
    else:
        answers = _about_call(store, views, trees, conversation, about)
    return HandOversDocument(conversation=conversation, about=about, agents=tuple(answers))


def _about_words(
    store: Store, views: Views, trees: Trees, task: str, words: str
) -> Iterator[HandOverDocument]:
    """Yield, for a conversation and each of its sub-agents, whether it knows the words, and whether
    its parent gave them.
    """
    terms = SearchTerms(words)
    calls = dict[str, BeginningCall]()
    first_events = dict[str | None, int]()

    def has(conversation: str, event_id: int | None) -> bool:
        events = () if event_id is None else store.events(conversation, event_id, event_id + 1)
        return any(terms.stand_in(text_of(event)) for event in events)

    for name in (task, *(name for name, _ in trees.below(task))):
        own_calls = calls_of_children(store, name, trees.children(name))
        calls |= own_calls
        unread = list[str]()
        with_words = events_with(store, name, terms, unread)
        holders = [
            event for event in with_words if event.shown or isinstance(event, CondensationAction)
        ]
        first = holders[0] if holders else None
        answer = HandOverDocument(conversation=name)
        if first is not None:
            first_events[name] = first.id
            results = {beginning.result: child for child, beginning in own_calls.items()}
            answer = replace(
                answer,
                first=first.id,
                first_at=None if first.timestamp is None else first.timestamp.isoformat(),
                came_from=results.get(first.id, name),
                fact=fact_document(fact(store, views, name, words)),
            )
        if name != task:
            parent = trees.parents[name]
            call, result = calls.get(name, (None, None))
            is_given = has(parent, call) or first_events.get(name, inf) < _first_reply(store, name)
            answer = replace(
                answer,
                parent=parent,
                call=call,
                result=result,
                came_from=parent if is_given else answer.came_from,
                is_given=is_given,
                is_returned=None if result is None else has(parent, result),
            )
        is_users = first is not None and first.source == "user"
        reasons = [*_words_of(answer, first_events.get(answer.parent, inf), is_users), *unread[:1]]
        yield replace(answer, reason="; ".join(reasons), is_concerned=reasons != [_NOT_THERE])


def _words_of(answer: HandOverDocument, parent_first: float, is_users: bool) -> Iterator[str]:
    """Yield the sentences of an answer about words. ``parent_first`` is the first event of the
    parent that has the words. ``is_users`` says whether a user wrote the agent's first event that
    has them.
    """
    parent = answer.parent
    call = parent if answer.call is None else f"call {answer.call} of {parent}"
    yield _NOT_THERE if answer.fact is None else answer.fact.reason
    if answer.is_given:
        yield f"{call} gave it"
    elif answer.came_from not in (None, answer.conversation):
        yield f"it came with event {answer.first}, the result of {answer.came_from}"
    elif is_users:
        yield f"the user wrote it in event {answer.first}"
    elif answer.first is not None:
        yield f"event {answer.first} has it first"
    if answer.call is not None and not answer.is_given and parent_first < answer.call:
        yield f"{call} did not give it, although event {parent_first} of {parent} has it"
    if answer.call is None or answer.fact is None:
        return
    if answer.result is None:
        yield f"{call} has no result"
    elif answer.is_returned:
        yield f"result {answer.result} of {parent} has it"
    else:
        yield f"lost: result {answer.result} of {parent} does not have it"


def _about_call(
    store: Store, views: Views, trees: Trees, conversation: str, about: int
) -> Iterator[HandOverDocument]:
    """Yield what a call gave to each sub-agent that it began. Raises ``InvalidArgument`` if the
    event began no sub-agent that exists.
    """
    children = trees.children(conversation)
    all_calls = calls_of_children(store, conversation, children)
    calls = {name: all_calls[name] for name in children if name in all_calls}
    if about not in {beginning.call for beginning in calls.values()}:
        others = ", ".join(str(event) for event in sorted({call for call, _ in calls.values()}))
        raise InvalidArgument(
            f"event {id_words(about)} of {conversation!r} began no sub-agent that exists; these"
            f" calls did: {others or 'none'}"
        )
    for name, beginning in calls.items():
        if beginning.call == about:
            yield _compare(store, views, conversation, name, beginning)


def _compare(
    store: Store, views: Views, parent: str, name: str, beginning: BeginningCall
) -> HandOverDocument:
    """Return which terms the parent knew and did not give to the sub-agent ``name``, and which
    terms did not come back with the result.
    """
    call, result = beginning
    events = [event for event in store.events(name) if event.shown]
    given_events = [*takewhile(lambda event: not begins_reply(event), events)]
    own_events = events[len(given_events) :]
    given_events += store.events(parent, call, call + 1)
    not_given = terms_not_passed_on([*views.at(parent, call)], given_events, own_events)
    not_returned: tuple[DroppedTermDocument, ...] = ()
    if result is not None:
        shown = views.at(parent, result + 1)
        later = store.events(parent, result + 1)
        not_returned = terms_not_passed_on(own_events, shown, later)
    return HandOverDocument(
        conversation=name,
        parent=parent,
        call=call,
        result=result,
        reason=f"not given: {_named(not_given)}; not returned: {_named(not_returned)}",
        not_given=not_given,
        not_returned=not_returned,
    )


def _named(terms: Sequence[DroppedTermDocument]) -> str:
    """Return a text with the first terms. The terms that were needed come first."""
    words = [
        f"{term.term} (event {term.event})"
        if term.needed_in is None
        else f"{term.term} (event {term.event}, needed in event {term.needed_in})"
        for term in sorted(terms, key=lambda term: term.needed_in is None)
    ]
    rest = f" and {len(words) - _NAMED:,} more" if len(words) > _NAMED else ""
    return f"{', '.join(words[:_NAMED])}{rest}" or "nothing"


def _first_reply(store: Store, conversation: str) -> float:
    """Return the first event of the agent's model, or infinity if there is none."""
    return next((event.id for event in store.events(conversation) if begins_reply(event)), inf)


def fact_document(fact: Fact) -> FactDocument:
    return FactDocument.of(fact, by=None if fact.by is None else fact.by.id)
