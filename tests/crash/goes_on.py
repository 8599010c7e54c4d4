"""At each place of an operation one write finds no space, or one sync fails: the open store goes on
by itself.
"""

from contextlib import suppress
from itertools import count

import foldlog
from foldlog import StoreUnavailable
from tests.crash.faults import fault


def append(histories, name):
    histories[name].append(
        [{"role": "user", "content": text} for text in "ab"], idempotency_key="k"
    )


def redact(histories, name):
    histories[name].redact(0, reason="test")


def lease(histories, name):
    with histories[name].lease():
        histories[name].append({"role": "user", "content": "c"}, idempotency_key="of the lease")


def erase(histories, name):
    with suppress(foldlog.ConversationErased):
        histories.erase(name, reason="test")


OPERATIONS = {
    append: ["a", "b"],
    redact: ["[redacted]", "b"],
    lease: ["[redacted]", "b", "c"],
    erase: [],
}
"""What a conversation holds after each of them, one after the other."""


class Fault:
    """A fault at the nth next call of the disk; ``over`` ends it, and returns whether it came."""

    def __init__(self, counted, *variables):
        self._counted, self._variables = fault(counted), [fault(name) for name in variables]

    def at(self, place):
        for variable in self._variables:
            variable.value = self._counted.value + place

    def over(self):
        came = self._counted.value >= self._variables[0].value
        for variable in self._variables:
            variable.value = 0
        return came


def contents(histories, name):
    if name not in histories:
        return []
    return [
        event.content for event in histories[name].events() if isinstance(event, foldlog.Message)
    ]


def fails_at(place, of, histories, name, work):
    """Do the work with a fault, and again without it. Return whether the fault came."""
    of.at(place)
    try:
        work(histories, name)
    except StoreUnavailable as error:
        if error.kind not in ("full", "disk") or not of.over():
            raise
        work(histories, name)
        return True
    return of.over()


def try_all_places(folder):
    """Return at how many places there was a fault."""
    faults = 0
    with foldlog.open(folder / "all.db") as histories:
        for of in (
            Fault("calls", "no_space_from", "no_space_until"),
            Fault("syncs", "fail_sync_at"),
        ):
            for place in count(1):
                name, came = f"c{faults} {place}", 0
                for work, expected in OPERATIONS.items():
                    came += fails_at(place, of, histories, name, work)
                    assert contents(histories, name) == expected, (place, work)
                if not came:
                    break
                faults += came
        assert [verdict for verdict in histories.maintenance.verify() if verdict.findings] == []
    return faults
