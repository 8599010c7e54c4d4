"""Condensers decide which events a View no longer shows. A condenser reads the View and decides,
and a handler appends the decision.

    from foldlog.condensers import CondenseHandler, Condensation, load_condenser

    handler = CondenseHandler(store, views, load_condenser("config.toml"))
    match handler.handle("c1"):
        case Condensation(action=action): ...     # appended; ask again for the new View
        case View() as view: ...                  # go on

    base.py        the interface of condensers
    rolling.py     decides when a condensation is due
    selection.py   finds the events that may be forgotten
    handler.py     runs a step over a stored conversation, while others may append to it
    stepping.py    runs a condenser, and keeps the events that no model has seen
    reply.py       the reply of a model
    reports.py     the reports of a step
    states.py      the objects into which reports can be written
    strategies/    the kinds of condensers
    models/        language models
    config/        configurations, and config_tables.py for their tables
    prompts/       the texts of prompts
    errors.py      the errors of condensers

Importing this package is cheap. A module is imported when a program first uses one of its names.
The first call of a model imports litellm.
"""

from __future__ import annotations

# A second import of the package from the root of a checkout would define each class twice.
if __name__ != "foldlog.condensers":
    raise ImportError(
        "there is no package 'condensers'; import 'foldlog.condensers'", name=__name__
    )

from foldlog._base import lazy

_HOMES = lazy.homes_of(__path__[0])
"""Maps each public name to the module that defines it."""

__all__ = sorted(_HOMES)
# An import of all modules at once takes a third of a second.
__getattr__ = lazy.lazy_getattr(__name__, _HOMES)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
