"""Recorders raise ``StoreUnavailable`` or ``StoreRefused``, caused by the driver's error."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from foldlog.eventstore.errors import StoreDamaged, StoreRefused, StoreUnavailable

FAILURES: Final = (StoreUnavailable, StoreRefused)
Failure = StoreUnavailable | StoreRefused

NOTHING_WRITTEN: Final = "; nothing was written"


MakeFailure = Callable[[str], Failure]

_refused: Final = partial(StoreRefused, kind="refused")

_BY_NAME: Final[dict[str, MakeFailure]] = {
    "IntegrityError": partial(StoreUnavailable, kind="taken"),
    "InterfaceError": partial(StoreRefused, kind="closed"),
    "NotSupportedError": _refused,
    "OperationalError": partial(StoreUnavailable, kind="away"),
    "ProgrammingError": _refused,
    "DatabaseError": StoreDamaged,
}


def failure_of(error: Exception) -> MakeFailure:
    # A driver derives its error classes from the classes of PEP 249. The nearest base class that
    # has a name from PEP 249 decides which error is raised.
    names = [kind.__name__ for kind in type(error).__mro__]
    return next((_BY_NAME[name] for name in names if name in _BY_NAME), _refused)
