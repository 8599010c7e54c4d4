"""If a connection breaks in the middle of a long operation, the operation goes on with another
connection.
"""

import itertools

import pytest

from foldlog.eventstore import CondensationAction, open_store
from foldlog.eventstore.maintenance.copy import copy_store
from foldlog.eventstore.maintenance.rekey import rekey
from foldlog.eventstore.maintenance.verify import verify
from foldlog.projections import Views, audit
from tests.said import ids, said

from .cutting import CuttingProxy

HI = said("hi")


class CutAtTheNth(CuttingProxy):
    """Cuts a connection at the message of a client at which ``messages_left`` becomes 0."""

    def __init__(self, target_port):
        super().__init__(target_port)
        self.messages_left = 0

    def due(self, chunk):
        self.messages_left -= 1
        return ("request", False) if self.messages_left == 0 else None


@pytest.fixture(scope="module")
def through(postgres_server):
    proxy = CutAtTheNth(postgres_server.port)
    yield proxy
    proxy.close()


def copied(store):
    with open_store("memory:") as target:
        return sorted(
            (moved.conversation, moved.version, moved.problem)
            for moved in copy_store(store, target, jobs=1)
        )


OPERATIONS = {
    "verify": lambda store: [verdict.findings for verdict in verify(store)],
    "copy": copied,
    "rekey": lambda store: [rekeyed.problem for rekeyed in rekey(store)],
    "rebuild": lambda store: Views(store).rebuild("a"),
    "events": lambda store: ids(store.events("a")),
    "View": lambda store: [event.id for event in Views(store).current("a").events],
    "audit": lambda store: audit(store, "a").findings,
    "follow": lambda store: [recorded.event.id for recorded in store.follow()],
}


@pytest.mark.parametrize("operation", OPERATIONS)
def test_operations_survive_broken_connections(
    through, postgres_server, postgres_url, operation, whole
):
    """Every third message meets a broken connection, or each with ``scripts/test --all``."""
    url = postgres_url()
    operate = OPERATIONS[operation]
    with open_store(url) as store:
        store.register(Views(store))
        store.append("a", [HI] * 4, expected_version=0, idempotency_key="key")
        store.append("a", CondensationAction(forgotten_event_ids=[1, 2]), expected_version=4)
        expected = operate(store)
    for nth in itertools.count(1, 1 if whole else 3):
        cuts = through.cuts
        with open_store(url.replace(f":{postgres_server.port}/", f":{through.port}/")) as store:
            through.messages_left = nth
            assert operate(store) == expected
            through.messages_left = 0
        if through.cuts == cuts:
            assert nth > 2
            return
