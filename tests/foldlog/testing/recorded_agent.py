"""A program that does again what a recorded run did, in a history of its own: it asks a model where
the run has replies, and appends everything else as the run has it.
"""

from msgspec.structs import replace

from foldlog._testing.calls import recorded_calls, standing_events
from foldlog.eventstore import (
    Annotation,
    CondensationAction,
    DocumentChanges,
    InvalidEvent,
    Redaction,
    summary_id,
    summary_of,
)


def replay_events(run, model, history):
    """``model`` gets the number of the call and the messages, and returns the reply."""
    calls = {call.reply[0].id: call for call in recorded_calls(run)}
    of_replies = {event.id for call in calls.values() for event in call.reply}
    new_ids = {}
    for event in standing_events(run):
        if event.id in calls:
            call = calls[event.id]
            answer = model(call.number, history.view().to_messages("openai"))
            try:
                recorded = history.append_reply(answer)
            except InvalidEvent:  # an empty reply
                recorded = history.append([replace(part, id=-1) for part in call.reply])
            by_call = {getattr(entry.event, "call_id", None): entry.id for entry in recorded}
            for part in call.reply:
                new_ids[part.id] = by_call.get(getattr(part, "call_id", None), recorded[0].id)
        elif event.id not in of_replies:
            (appended,) = history.append(_with_ids(event, new_ids))
            new_ids[event.id] = appended.id


def _with_ids(event, new_ids):
    if isinstance(event, Redaction | DocumentChanges):
        return Annotation(name="left out")
    event = replace(event, id=-1, redacted=None, cause=new_ids.get(event.cause))
    if not isinstance(event, CondensationAction) or event.forgotten_event_ids is None:
        return event
    ids = [
        summary_id(new_ids[summary_of(forgotten)]) if forgotten < -1 else new_ids.get(forgotten)
        for forgotten in event.forgotten_event_ids
    ]
    return replace(
        event,
        forgotten_event_ids=tuple(new_id for new_id in ids if new_id is not None),
        forgotten_events_start_id=None,
        forgotten_events_end_id=None,
    )
