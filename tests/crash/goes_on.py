"""Let one write of an operation find no space, or one sync fail, at each place in turn: the open store
must go on without being opened again.
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
"""Maps each operation, in this order, to the content of the conversation after it."""


class Fault:
    """A fault at a call of the disk, which ``counter`` counts."""

    def __init__(self, counter, *variables):
        self._counter = fault(counter)
        self._variables = [fault(name) for name in variables]

    def arm(self, place):
        """Let the call fail that is so many calls from now."""
        for variable in self._variables:
            variable.value = self._counter.value + place

    def disarm(self):
        """Stop the faults. Return whether the fault has happened."""
        has_happened = self._counter.value >= self._variables[0].value
        for variable in self._variables:
            variable.value = 0
        return has_happened


def contents(histories, name):
    if name not in histories:
        return []
    return [
        event.content for event in histories[name].events() if isinstance(event, foldlog.Message)
    ]


def run_with_fault(disk_fault, place, operation, histories, name):
    """Run an operation with a fault, and repeat it if it fails. Return whether the fault happened."""
    disk_fault.arm(place)
    try:
        operation(histories, name)
    except StoreUnavailable as error:
        if error.kind not in ("full", "disk") or not disk_fault.disarm():
            raise
        operation(histories, name)
        return True
    return disk_fault.disarm()


def try_all_places(folder):
    """Return at how many places a fault happened."""
    faults = 0
    with foldlog.open(folder / "all.db") as histories:
        for disk_fault in (
            Fault("calls", "no_space_from", "no_space_until"),
            Fault("syncs", "fail_sync_at"),
        ):
            for place in count(1):
                name = f"c{faults} {place}"
                happened = 0
                for operation, expected in OPERATIONS.items():
                    happened += run_with_fault(disk_fault, place, operation, histories, name)
                    assert contents(histories, name) == expected, (place, operation)
                if not happened:
                    break
                faults += happened
        assert [verdict for verdict in histories.maintenance.verify() if verdict.findings] == []
    return faults
