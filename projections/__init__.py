"""The read side of foldlog: the View of a conversation at any version. A View is a fold over the
log of the conversation.

``fold.py`` computes the fold, with ``units.py`` (which events belong together), ``left_behind.py``
and ``v0_dialect.py``. ``view.py`` defines the result of the fold, and ``messages/`` builds chat
messages from a View. ``stored/`` stores the structure of a View beside the events, and loads it
again. ``views.py`` makes the Views of stored conversations. ``explain.py`` explains why a View
shows an event or not, and what changed between two Views. ``lifetimes/`` computes, in one pass over
the log, at which versions a View shows each event. ``revision_audit.py`` compares stored revisions
with the log. ``tool_results.py`` is the only module of ``foldlog.projections`` that appends events.

    items.py          the events of a View, as a sequence
    intervals.py      sets of ids, as intervals
    condensations.py  the condensations that made a View
    retractions.py    find the events that retractions took back
    tool_results.py   record the result of a call, or close a call that will never get a result
    conversations/    companions, names of kinds, damaged events
    refusals.py       find out whether a person refused a call
    call_states.py    find out whether the tool of a call has run, even if Views forget the call
    errors.py         the errors for versions and events that do not exist
"""

# An import from the root of a checkout would define each class twice.
if __name__ != "foldlog.projections":
    raise ImportError(
        "there is no package 'projections'; import 'foldlog.projections'", name=__name__
    )

from foldlog._base import lazy

_HOMES = lazy.homes_of(__path__[0])
__all__ = [*_HOMES]
__getattr__ = lazy.lazy_getattr(__name__, _HOMES)
