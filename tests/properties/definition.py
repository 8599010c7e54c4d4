"""A History as the model of the simulation has it, which defines the View as slowly as it can be
written.
"""

from foldlog.eventstore import CondensationAction, CondensationSummary, UnknownEvent
from foldlog.projections import well_formed
from tests.said import ids
from tests.simulation import model
from tests.simulation.plain import said

__all__ = ["assert_as_defined", "modelled"]


def modelled(events):
    return model.Conversation("c", [_modelled(event) for event in events])


def _modelled(event):
    fields = said(event)
    match event:
        case CondensationAction():
            names = ("forgotten_event_ids", "forgotten_events_start_id", "forgotten_events_end_id")
            return fields | {name: getattr(event, name) for name in names}
        case CondensationSummary():
            return fields | {"kind": "condensation_summary"}
        case UnknownEvent():
            return fields | {"kind": "unknown", "origin": ("unknown", 0)}
    return fields


def assert_as_defined(view, events):
    """A View is the View of its events, also what of it is sent, and where it may be cut."""
    defined = modelled(events)
    shown = defined.shown()
    assert ids(view) == [*shown.ids]
    assert view.unhandled_condensation_request == shown.requested
    assert view.left_behind == shown.left
    assert ids(well_formed(view)) == defined.fit(shown)
    assert ids(view.open_calls) == sorted(defined.open_calls(shown), key=shown.ids.index)
    assert [*view.cut_points] == defined.cut_points(shown)
    units = [calls.members for calls in view.units.parallel_calls]
    units += [*view.units.loops, *view.units.bonds]
    assert [{view[place].id for place in unit} for unit in units] == defined.units(shown)
