"""The View of a history, as the model of the simulation computes it in the slow and plain way."""

from foldlog.eventstore import CondensationAction, UnknownEvent
from foldlog.eventstore.events import is_structural
from foldlog.projections import well_formed
from tests.said import ids
from tests.simulation import model
from tests.simulation.conversion import FORGOTTEN, product_fields


def _to_model(event):
    fields = product_fields(event)
    match event:
        case CondensationAction():
            return fields | {name: getattr(event, name) for name in FORGOTTEN}
        case UnknownEvent():
            return fields | {"kind": "unknown", "origin": ("unknown", 0)}
    return fields


def structural_since(events):
    """Return a function that returns the structural events from an id on."""
    return lambda start: [event for event in events if is_structural(event) and event.id >= start]


def assert_as_defined(view, events):
    """A View shows what the model shows, sends the same events and may be cut at the same places."""
    conversation = model.Conversation("c", [_to_model(event) for event in events])
    expected = conversation.view()
    assert ids(view) == [*expected.ids]
    assert view.unhandled_condensation_request == expected.requested
    assert view.left_behind == expected.left_behind
    assert ids(well_formed(view)) == conversation.sendable_ids(expected)
    assert ids(view.open_calls) == sorted(conversation.open_calls(expected), key=expected.ids.index)
    assert [*view.cut_points] == conversation.cut_points(expected)
    units = [calls.members for calls in view.units.parallel_calls]
    units += [*view.units.loops, *view.units.bonds]
    assert [{view[place].id for place in unit} for unit in units] == conversation.units(expected)
