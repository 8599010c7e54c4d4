"""An agent that asks for a condensation itself, and a condensation with a summary."""

from foldlog.condensers import Condensation, ConversationWindowCondenser, request_condensation_tool
from foldlog.eventstore import (
    AgentCondensationObservation,
    CondensationAction,
    CondensationRequest,
    CondensationRequestAction,
    Message,
)
from foldlog.projections import View

assert request_condensation_tool()["function"]["name"] == "request_condensation"
assert CondensationRequestAction is CondensationRequest
events = [Message(source="user", content="the task")]
events += [Message(source="agent", content=f"step {number}") for number in range(9)]
condenser = ConversationWindowCondenser()
assert condenser.handles_condensation_requests()
assert isinstance(condenser.condense(View.from_events(events)), View)
events.append(CondensationRequestAction())
view = View.from_events(events)
assert view.unhandled_condensation_request
condensation = condenser.condense(view)
assert isinstance(condensation, Condensation)
assert isinstance(condensation.action, CondensationAction)
events.append(condensation.action)
view = View.from_events(events)
assert not view.unhandled_condensation_request
assert view[0].content == "the task"

flat = Condensation(
    forgotten_event_ids=[event.id for event in view[1:3]], summary="so far", summary_offset=1
)
events.append(flat.action)
view = View.from_events(events)
assert isinstance(view[1], AgentCondensationObservation)
assert view.summary_event is view[1]
assert view.summary_event.content == "so far"
assert len(view.condensations) == 2
assert set(flat.action.forgotten_event_ids) <= view.forgotten_event_ids
