"""Lists, figures and redactions of a store in which one conversation is encrypted, without its
key. The session ``rekey`` shows what commands say without a key.
"""

from functools import partial

import pytest

import foldlog
from foldlog import KeyRing
from foldlog.eventstore import KeyUnavailable
from tests.said import said
from tests.waiting import until
from tests.web_client import asking_store

KEYS = KeyRing(["ab" * 32])


@pytest.fixture(params=[None, KeyRing(["cd" * 32])], ids=["no key", "another key"])
def opened(request, tmp_path):
    """``opened()``: a store with a conversation ``sealed``, without its key. ``opened(KEYS)`` has
    it.
    """

    def open_(keys=request.param):
        return foldlog.open(f"sqlite:///{tmp_path}/foldlog.db?plain=allowed", keys=keys)

    with open_(KEYS) as histories:
        histories.create("sealed", {"app": "x"}).append(said("hello"))
    return open_


def test_list_has_new_events_without_the_key(opened):
    with opened(KEYS) as histories:
        histories["other"].append(said("hello"))
    for newer in range(3):
        with opened() as histories:
            listed = histories.list(age_max_s=0).conversations
        assert listed[0].id == ("sealed" if newer else "other")
        (sealed,) = (sealed for sealed in listed if sealed.id == "sealed")
        assert (sealed.version, sealed.attributes) == (2 + newer, None)
        with opened(KEYS) as histories:
            histories["sealed"].append(said("again"))


def test_figures_count_conversations_without_a_key(opened):
    with opened(None) as histories:
        histories["plain"].append(said("bye"))
        with asking_store(histories.store) as client:
            until(lambda: client.json("fleet")["counted"] == 2)
            fleet = client.json("fleet")
            metrics = client.get("/metrics").text
        assert (fleet["conversations"], fleet["needs_key"], fleet["events"]) == (2, 1, 1)
        assert "\nfoldlog_conversations_counted 1\n" in metrics


def test_dry_run_of_a_redaction_needs_the_keys_of_forks(opened):
    """A summary in the fork may quote the event."""
    with opened(None) as histories:
        histories["base"].append(said("tulip"))
    with opened(KEYS) as histories:
        histories["base"].fork(1, "fork")
    with opened() as histories:
        redact = partial(histories.maintenance.redact_matching, "tulip", reason="asked to")
        for dry_run in (True, False):
            with pytest.raises(KeyUnavailable, match="conversation 'fork' is encrypted"):
                redact(dry_run=dry_run)
        histories.erase("fork", reason="lost its key")
        assert redact(dry_run=True).events == redact().events == {"base": (0,)}
