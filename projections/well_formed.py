"""Make a View fit for a model, and say where a View may be cut: see ``foldlog.projections.units``."""

from __future__ import annotations

from foldlog.projections.view import View


def well_formed(view: View) -> View:
    """Return the View without the events that a model would refuse: actions without observations, observations without
    actions, incomplete parallel calls, broken tool loops. A second call changes nothing. Cost: the events of the View.
    """
    positions = view.fit_positions
    return view if len(positions) == len(view) else view.with_events(view.events[place] for place in positions)


def cut_points(view: View) -> tuple[int, ...]:
    """Return the indices, from 0 to ``len(view)``, at which the View may be cut: if ``view[i:j]`` is forgotten for two
    of them, all other events can still be sent. Cost: the events of the View.
    """
    return view.cut_points
