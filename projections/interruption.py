"""Close calls that will never get a result: a program died while they ran, or a person stopped them."""

from __future__ import annotations

from functools import partial

from eventstore import ANY_VERSION, Recorded, Store, VersionConflict
from eventstore.events import Observation
from eventstore.values.arguments import text
from eventstore.writing.generation import Generation
from projections.tool_results import check_still_open
from projections.views import Views

UNKNOWN_OUTCOME = "the program stopped before it recorded a result; the call may have run, in part or whole"
"""The default reason. A model that reads it can check before it repeats the call."""


def interrupt(
    store: Store, views: Views, conversation: str, reason: str = "", *, generation: Generation | None = None
) -> tuple[Recorded, ...]:
    """Append an observation "interrupted: …" with the reason for each open call: for all of them or none.

    Return them in the order of the calls; without an open call nothing is appended. Other writers may append at the
    same time: a call that another writer answers first gets no second observation. Raises ``ConversationNotFound``
    before the first append, and what ``Store.append`` and ``Views.current`` raise. Durability: on disk when it returns.
    Cost: the View, and the open calls.
    """
    content = f"interrupted: {text('reason', reason).strip() or UNKNOWN_OUTCOME}"
    while True:
        view = views.current(conversation)
        observations = [
            Observation(tool=call.tool, call_id=call.call_id, cause=call.id, content=content, is_error=True)
            for call in view.open_calls
        ]
        if not observations:
            return ()
        try:
            return store.append(
                conversation,
                observations,
                expected_version=ANY_VERSION,
                guard=partial(check_still_open, view),
                generation=generation,
            )
        except VersionConflict:
            continue
