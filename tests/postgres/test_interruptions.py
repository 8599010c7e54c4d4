"""What a signal handler raises in a thread that writes to a server says whether the write is
there.
"""

from collections import Counter

import pytest

from foldlog.eventstore import ANY_VERSION, open_store
from tests.eventstore.interruptions import interrupted_at
from tests.said import said

HI = said("hi")
NO_PLACE = 1_000_000
AROUND_THE_COMMIT = 150
MORE = 40
"""The places of two appends differ by so many: the server's answers come in more pieces, or in
fewer.
"""
STEP = 8


def interrupted(store, place, exception):
    """Interrupt an append at one place. Return the places that were left, and what the exception
    said of the append, when it was true. An ``Exception`` before the commit may count as a wrong
    guess: then the append runs again, once.
    """
    conversation = f"c{place}"
    plain = isinstance(exception, Exception)
    store.append(conversation, HI, expected_version=0)
    store.append(
        "warm", [HI, HI], expected_version=ANY_VERSION, idempotency_key=conversation
    )  # statements are prepared
    raised = None
    with interrupted_at(place, exception) as interrupting:
        try:
            if plain:
                store.append(conversation, [HI, HI], expected_version=ANY_VERSION)
            else:
                store.append(conversation, [HI, HI], expected_version=1, idempotency_key="a")
        except type(exception) as error:
            raised = error
    assert raised is (exception if interrupting.raised else None) or (plain and raised is None)
    written = {1: False, 3: True}[store.version(conversation)]
    [note] = getattr(exception, "__notes__", None) or [""]
    if "not known whether its events are written" in note:
        return interrupting.places_left, "not known"
    assert written == (raised is None or "came after the commit" in note), (
        f"place {place}: {note!r}"
    )
    return interrupting.places_left, "written" if written else "not written"


@pytest.mark.parametrize("make", [KeyboardInterrupt, TimeoutError])
def test_an_interrupted_append_reports_its_outcome(postgres_url, whole, make):
    """At places from shortly before the commit is sent, all of them with ``scripts/test --all``,
    and at some before. While the server is asked to commit, it says that it does not know.

    There is one connection: a place in the pool that an interruption kept would be missed.
    """
    with open_store(f"{postgres_url()}&connections_max=1") as store:
        places = NO_PLACE - interrupted(store, NO_PLACE, make())[0]
        step = 1 if whole else 3
        around = range(places - AROUND_THE_COMMIT, places + MORE, step)
        some = [*range(1, places - AROUND_THE_COMMIT, STEP * step), *around]
        outcomes = Counter(interrupted(store, place, make())[1] for place in some)
    assert min(outcomes[each] for each in ("written", "not written", "not known")) > 5 // step
