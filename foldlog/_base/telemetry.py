"""The only module that logs and measures: it writes messages to the standard ``logging``, and has a
hook for a program's telemetry.

Other modules only call ``tell``, ``span`` and the decorators. Each message has its own logger,
whose name does not change between releases. The values of a message are attributes of the log
record. No message contains the content of an event. Without telemetry such as ``foldlog.otel``, an
append to a SQLite file that waits for nobody calls nothing in this module.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from functools import wraps
from typing import Any, Final, ParamSpec, Protocol, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

TRACEPARENT: Final = "traceparent"
"""The key in an event's ``meta`` for the trace context of its append, in W3C's form."""
SHOWN: Final = "shown_version"
"""The key in an event's ``meta`` for the version of the View that the model was shown.

A reply has this key if other programs appended events between the reading of the View and the
append of the reply. The first event after ``prepare`` or ``step`` also has this key if it is not a
reply.
"""
OF_APPENDS: Final = frozenset((TRACEPARENT, SHOWN))
"""The keys that an append adds to ``meta``. A repeated append may have other values under these
keys, and still counts as the same append.
"""

# The numbers of ``logging``, which is imported when there is something to log: importing it takes a
# twentieth of the time of opening a store.
_INFO = 20
_WARNING = 30
MESSAGES: Final[Mapping[str, tuple[int, str]]] = {
    "foldlog.condensation.made": (
        _INFO,
        (
            "conversation %(conversation)r: condensation %(condensation)d by %(condenser)r"
            " (%(reason)s): %(events_before)d events before, %(events_after)d after;"
            " %(tokens_before)s tokens before, %(tokens_after)s after; %(ms)d ms%(paid)s"
        ),
    ),
    "foldlog.condensation.failed": (
        _WARNING,
        (
            "conversation %(conversation)r: the condenser %(condenser)r %(outcome)s, because its"
            " model %(model)r failed (%(failure)s, %(error)s); attempts: %(attempts)s%(paid)s;"
            " its report in the conversation has the error's text (foldlog log %(conversation)s"
            " --kind annotation --kind condensation)"
        ),
    ),
    "foldlog.condensation.declined": (
        _WARNING,
        (
            "conversation %(conversation)r: the condenser %(condenser)r declined a condensation"
            " (events in the View: %(events_before)d): %(reason)s"
        ),
    ),
    "foldlog.condensation.dropped": (
        _WARNING,
        (
            "conversation %(conversation)r: a condensation by %(condenser)r, planned at version"
            " %(planned_at)d, was given up: %(reason)s%(paid)s"
        ),
    ),
    "foldlog.condensation.tools_unknown": (
        _WARNING,
        (
            "conversation %(conversation)r: the agent's prompt is continued without its tools, so"
            " the server's cache has no prompt that begins like it; pass request= to append_reply,"
            " or log a SystemMessage with the tools"
        ),
    ),
    "foldlog.model.keys_ignored": (
        _WARNING,
        (
            "the table of the model %(model)r has keys that foldlog ignores: %(keys)s"
            " (docs/ADAPTERS.md)"
        ),
    ),
    "foldlog.store.waited": (
        _WARNING,
        "a write waited %(seconds).1f s for other writers or its server",
    ),
    "foldlog.store.away": (
        _WARNING,
        "%(problem)s; trying again for up to %(seconds)g s (patience_s in the URL)",
    ),
    "foldlog.store.moved": (_WARNING, "%(problem)s"),
    "foldlog.follower.behind": (
        _WARNING,
        (
            "follower %(follower)r is %(seconds)d s behind the store: it has not read the event at"
            " position %(position)d"
        ),
    ),
    "foldlog.keeper.behind": (
        _WARNING,
        "figures, lists or the search index are not up to date: %(problem)s",
    ),
    "foldlog.store.not_synced": (
        _WARNING,
        "the newest chunks of streams may not be on the disk: %(problem)s",
    ),
    "foldlog.lease.taken_over": (
        _WARNING,
        (
            "conversation %(conversation)r: %(worker)r takes over from %(former)r, which did not"
            " renew its lease in time"
        ),
    ),
    "foldlog.lease.failed": (
        _WARNING,
        (
            "conversation %(conversation)r: its lease could not be renewed or released, and will"
            " expire: %(problem)s"
        ),
    ),
    "foldlog.resume.finding": (
        _WARNING,
        "conversation %(conversation)r is left out of the list to resume: %(problem)s",
    ),
    "foldlog.import.finding": (_WARNING, "%(of)s: %(finding)s"),
}
"""Maps the name of a logger to the level and the text of its message. ``docs/OBSERVING.md`` lists
the messages.
"""

_LONG_S: Final = 1.0
"""A wait that takes longer than this number of seconds is logged."""


class Telemetry(Protocol):
    """The interface of a program's telemetry, such as ``foldlog.otel``."""

    def receive(self, name: str, values: Mapping[str, Any]) -> None:
        """Receive the values of a message in ``MESSAGES``, or of a measurement such as
        ``foldlog.view``.
        """

    def span(self, name: str, values: Mapping[str, Any]) -> AbstractContextManager[dict[str, Any]]:
        """Observe a piece of work in a ``with`` block. The block adds the results of the work to
        the yielded map.
        """

    def store(self, *args: Any, **named: Any) -> Any:
        """Return a ``Store`` whose appends are observed. The method takes the arguments of
        ``Store``.
        """


telemetry: Telemetry | None = None
"""The telemetry of this process, or None."""


def tell(name: str, **values: Any) -> None:
    """Log a message, and pass it to the telemetry. The values become attributes of the log
    record. Lone surrogates in texts are escaped, because a handler that writes a file would fail.
    """
    import logging

    values = {key: _encodable(value) for key, value in values.items()}
    logger = logging.getLogger(name)
    level, text = MESSAGES[name]
    # Without a handler, Python prints only the text on stderr.
    if not logger.hasHandlers():
        text = f"{name}: note: {text}"
    cost = values.get("cost")
    paid = f"; cost {cost:.4g} USD" if cost else ""  # an unknown cost is left out
    logger.log(level, text, {**values, "paid": paid}, extra=values, stacklevel=2)
    measure(name, **values)


def _encodable(value: Any) -> Any:
    if not isinstance(value, str) or value.isascii():
        return value
    return value.encode(errors="backslashreplace").decode()


def has_receiver(name: str) -> bool:
    """Return whether anything receives this message. If nothing receives the message, the caller
    need not compute the values of the message.
    """
    import logging

    return telemetry is not None or logging.getLogger(name).isEnabledFor(MESSAGES[name][0])


def measure(name: str, **values: Any) -> None:
    """Pass the values of a measurement to the telemetry."""
    if telemetry is not None:
        telemetry.receive(name, values)


@contextmanager
def span(name: str, **values: Any) -> Iterator[dict[str, Any]]:
    """Let the telemetry observe a ``with`` block. The block adds the results of its work to the
    yielded map.
    """
    if telemetry is None:
        yield {}
    else:
        with telemetry.span(name, values) as more:
            yield more


def waits(wait: Callable[P, T]) -> Callable[P, T]:
    """Decorate a function that waits, so that its waits are measured, and long waits are logged."""

    @wraps(wait)
    def timed(*args: P.args, **kwargs: P.kwargs) -> T:
        begun = time.monotonic()
        try:
            return wait(*args, **kwargs)
        finally:
            seconds = time.monotonic() - begun
            report = tell if seconds > _LONG_S else measure
            report("foldlog.store.waited", seconds=seconds)

    return timed
