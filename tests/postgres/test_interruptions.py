"""An exception that a signal handler raises in a thread that writes to a server says whether the
write is stored.
"""

from collections import Counter

import pytest

from foldlog.eventstore import ANY_VERSION, open_store
from tests.eventstore.interruptions import interrupted_at
from tests.said import said

HI = said("hi")
NO_PLACE = 1_000_000
"""An append has fewer places, so an interruption at this one never comes."""
AROUND_THE_COMMIT = 150
"""The commit is sent among so many last places."""
MORE = 40
"""The numbers of places of two appends differ by at most so many, because the answers of the server
come in more or in fewer pieces.
"""
STEP = 8
"""Before the commit, only every place with this distance is interrupted."""


def interrupted(store, place, exception):
    """Interrupt an append at one place, and check that what the exception says of it is true.
    Return the places that were left, and what it says: "written", "not written" or "not known".

    An ``Exception`` before the commit may count as a wrong guess about the conversation: then the
    append runs again, once, and raises nothing.
    """
    conversation = f"c{place}"
    may_run_again = isinstance(exception, Exception)
    store.append(conversation, HI, expected_version=0)
    # This append prepares the statements.
    store.append("warm", [HI, HI], expected_version=ANY_VERSION, idempotency_key=conversation)
    raised = None
    with interrupted_at(place, exception) as interrupting:
        try:
            if may_run_again:
                store.append(conversation, [HI, HI], expected_version=ANY_VERSION)
            else:
                store.append(conversation, [HI, HI], expected_version=1, idempotency_key="a")
        except type(exception) as error:
            raised = error
    if raised is None:
        assert may_run_again or not interrupting.raised
    else:
        assert raised is exception
    version = store.version(conversation)
    assert version in (1, 3)
    is_written = version == 3
    note = "".join(getattr(exception, "__notes__", []))
    if "not known whether its events are written" in note:
        return interrupting.places_left, "not known"
    says_written = raised is None or "came after the commit" in note
    assert is_written == says_written, f"place {place}: {note!r}"
    return interrupting.places_left, "written" if is_written else "not written"


@pytest.mark.parametrize("make", [KeyboardInterrupt, TimeoutError])
def test_an_interrupted_append_reports_its_outcome(postgres_url, whole, make):
    """An append is interrupted at some places before the commit, and at every third place from
    shortly before the commit on, or at each with ``scripts/test --all``. While the server is asked
    to commit, the exception says that the outcome is not known.

    The store has one connection, so an interruption that did not give it back would be noticed.
    """
    with open_store(f"{postgres_url()}&connections_max=1") as store:
        places = NO_PLACE - interrupted(store, NO_PLACE, make())[0]
        step = 1 if whole else 3
        around = range(places - AROUND_THE_COMMIT, places + MORE, step)
        some = [*range(1, places - AROUND_THE_COMMIT, STEP * step), *around]
        outcomes = Counter(interrupted(store, place, make())[1] for place in some)
    for outcome in ("written", "not written", "not known"):
        assert outcomes[outcome] > 5 // step
