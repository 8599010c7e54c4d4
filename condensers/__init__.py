"""Forgetting, as command handlers: a condenser reads a View and decides, a handler appends what it decided.

    from foldlog.condensers import CondenseHandler, Condensation, load_condenser

    handler = CondenseHandler(store, views, load_condenser("config.toml"))
    match handler.handle("c1"):
        case Condensation(action=action): ...     # appended; ask again for the new View
        case View() as view: ...                  # go on

    base.py rolling.py selection.py    what a condenser is, when it is due, what it may forget
    handler.py                         one step over a stored conversation, also under contention
    unseen.py                          what no model was shown yet stays
    reports.py states.py               what a step reports; where an agent of one's own keeps it
    strategies/ models/ config/ prompts/    the strategies; the model; configuration; texts of prompts
    errors.py tables.py                what can go wrong; tables of configurations

Importing this is cheap: what a name needs is imported when the name is first used, and litellm at the first model call.
"""

from __future__ import annotations

if __name__ != "foldlog.condensers":  # from the root of a checkout: each class would be there twice
    raise ImportError("there is no package 'condensers'; import 'foldlog.condensers'", name=__name__)

import importlib
import pkgutil
import re
import typing

_STUB = (pkgutil.get_data(__name__, "__init__.pyi") or b"").decode()
_HOMES = {name: home for home, name in re.findall(r"^from (\S+) import [(\s]*(\w+)", _STUB, re.MULTILINE)}
"""The module of each public name, which is imported when the name is first used: type checkers read the same file."""

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> typing.Any:  # all modules at once take a third of a second
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(importlib.import_module(_HOMES[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
