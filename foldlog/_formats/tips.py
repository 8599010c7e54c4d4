"""Find the version of an imported history at which one record of its source was the newest: a fork of its branch begins
there.
"""

from __future__ import annotations

from collections.abc import Collection

from foldlog.eventstore import Action, ConversationNotFound, Event, InvalidArgument, Observation, Store, is_structural


def version_of_tip(store: Store, conversation: str, source_id: str | int) -> int:
    """Return the version after the last event whose source named it ``source_id``. The View there shows the branch that
    ends in this record, also where the source switched to another branch later.

    The actions of one response and their observations belong together: the version is after the last of them that
    directly follows, so that no call is left open. ``"7"`` finds the source's ids ``"7"`` and ``7``.

    Raises ``InvalidArgument`` where no event has this id, and ``ConversationNotFound``. Cost: the events from there to
    the end.
    """
    if not isinstance(source_id, str | int):
        raise TypeError(f"at_source is an id of the imported source, a text or a whole number, not {source_id!r}")
    version = store.conversation(conversation).version
    if version == 0:
        raise ConversationNotFound(conversation)
    for event in store.events(conversation, 0, version, reverse=True):
        if _is_named(event, source_id):
            return _after_its_group(store, conversation, event)
    raise InvalidArgument(
        f"conversation {conversation!r} has no event with the source id {source_id!r} among its {version} events; "
        f"'foldlog log ID --json' prints the source id of each event as origin.id"
    )


def _is_named(event: Event, source_id: str | int) -> bool:
    if event.origin is None or event.origin.id is None:
        return False
    found = event.origin.id
    return bool(found == source_id) or (isinstance(found, int) and str(found) == source_id)


def _after_its_group(store: Store, conversation: str, event: Event) -> int:
    """Return the version after the events of the same response, and of their results, that directly follow."""
    caller = event if isinstance(event, Action) else None
    if caller is None and (not isinstance(event, Observation) or (event.cause is None and event.call_id is None)):
        return event.id + 1
    first = event.id
    for earlier in store.events(conversation, 0, event.id, reverse=True):
        if isinstance(earlier, Action) and caller is None and isinstance(event, Observation):
            if _answers(event, (earlier.call_id, earlier.id)):
                caller, first = earlier, earlier.id
        elif isinstance(earlier, Action) and caller is not None and _are_parallel(earlier, caller):
            first = earlier.id
        elif caller is not None and earlier.shown and not isinstance(earlier, Observation):
            break  # only bookkeeping and results stand between parallel calls
    version, calls = event.id + 1, set[str | int | None]()
    for each in store.events(conversation, first if caller else version):
        if isinstance(each, Action) and caller and (each.id == caller.id or _are_parallel(each, caller)):
            calls |= {each.call_id, each.id}
        elif not (isinstance(each, Observation) and _answers(each, calls)):
            if each.id > event.id and (each.shown or is_structural(each)):
                break
            continue  # bookkeeping may stand between them
        version = max(version, each.id + 1)
    return version


def _are_parallel(one: Action, other: Action) -> bool:
    return one.response_id is not None and one.response_id == other.response_id


def _answers(observation: Observation, calls: Collection[str | int | None]) -> bool:
    """Return whether an observation names one of the calls, by its event or by its id."""
    named = observation.call_id if observation.cause is None else observation.cause
    return named is not None and named in calls
