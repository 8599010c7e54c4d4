"""The read side of foldlog: the View of a conversation at any version. A View is a fold over the
log of the conversation.

``fold.py`` computes the fold, with ``units.py`` (which events belong together), ``left_behind.py``
and ``v0_dialect.py``. ``view.py`` defines the result of the fold, and ``messages/`` builds chat
messages from a View. ``stored/`` stores the structure of a View beside the events, and loads it
again. ``views.py`` makes the Views of stored conversations. ``explain.py`` explains why a View
shows an event or not, and what changed between two Views. ``lifetimes/`` computes, in one pass over
the log, at which versions a View shows each event. ``audit.py`` compares stored revisions with the
log. ``tool_results.py`` is the only module of ``foldlog.projections`` that appends events.

    items.py          the events of a View, as a sequence
    intervals.py      sets of ids, as intervals
    condensations.py  the condensations that made a View
    retractions.py    find the events that retractions took back
    tool_results.py   record the result of a call, or close a call that will never get a result
    effects.py        find out whether the tool of a call has run, even if Views forget the call
    errors.py         the errors for versions and events that do not exist
"""

# An import from the root of a checkout would define each class twice.
if __name__ != "foldlog.projections":
    raise ImportError(
        "there is no package 'projections'; import 'foldlog.projections'", name=__name__
    )

from types import ModuleType as _ModuleType

from foldlog.projections.audit import Audit as Audit, Finding as Finding, audit as audit
from foldlog.projections.effects import Effect as Effect, EffectState as EffectState
from foldlog.projections.errors import NoSuchEvent as NoSuchEvent, NoSuchVersion as NoSuchVersion
from foldlog.projections.explain import (
    Difference as Difference,
    Summarized as Summarized,
    Why as Why,
)
from foldlog.projections.fold import (
    Folded as Folded,
    PastLog as PastLog,
    summary_event as summary_event,
)
from foldlog.projections.intervals import (
    Intervals as Intervals,
    contains as contains,
    normalize as normalize,
)
from foldlog.projections.lifetimes import (
    Lifetime as Lifetime,
    Lifetimes as Lifetimes,
    Moment as Moment,
    Span as Span,
)
from foldlog.projections.lifetimes.fold import LifetimesFold as LifetimesFold
from foldlog.projections.messages import (
    Dialect as Dialect,
    Rendered as Rendered,
    render_events as render_events,
    says_something as says_something,
)
from foldlog.projections.messages.content import (
    as_json as as_json,
    content_texts as content_texts,
    with_texts as with_texts,
    words_of as words_of,
)
from foldlog.projections.messages.turns import arguments_of as arguments_of
from foldlog.projections.retractions import intervals_kept as intervals_kept
from foldlog.projections.tool_results import (
    append_tool_result as append_tool_result,
    close_open_calls as close_open_calls,
)
from foldlog.projections.units import begins_reply as begins_reply
from foldlog.projections.view import View as View, well_formed as well_formed
from foldlog.projections.views import Views as Views

__all__ = [
    name
    for name, value in globals().items()
    if name[0] != "_" and not isinstance(value, _ModuleType)
]
