"""What a golden store of an earlier version can still do."""

import pytest

from foldlog import LeaseTaken
from foldlog.eventstore import ANY_VERSION, Origin
from foldlog.formats import SourceRefused
from tests.golden.make import LONG, history, write_source
from tests.said import said, say
from tests.sound import assert_sound


def check_that_it_goes_on(histories, conversations, folder):
    """Check that every conversation takes an event and a fork, and that idempotency keys, source
    ids, documents, imports, archived events, effects and leases are found again.
    """
    store = histories.store
    check_imports(histories, folder)
    assert len([*histories["unused"].events()]) == 4
    assert len([*histories["archived"].events()]) == len(history())
    for name, expected in conversations.items():
        if "erased" not in expected:
            version = histories[name].version()
            say(store, name, "on")
            store.fork(name, version, f"fork of {name}")
            assert len(list(store.events(f"fork of {name}"))) == version
    for name in ("plain none", "encrypted zstd"):
        repeated = store.append(name, history(), expected_version=0, idempotency_key="filled")
        assert [recorded.event.id for recorded in repeated] == list(range(len(history())))
    again = [said("0", origin=Origin(format="golden", id=n)) for n in (0, LONG - 1)]
    assert store.append("long", again, expected_version=ANY_VERSION, dedupe="origin") == ()
    documents = histories["documents"]
    assert documents.document("plan")["steps"] == [1, 2]
    assert documents.attributes() == {"title": "Kites", "tags": ["wind", "sky"]}
    tagged = {row.id for row in histories.list({"tags": ["wind"]}).conversations}
    assert tagged == {"documents", "fork of documents"}
    check_work(histories["working"])
    assert_sound(store)


def check_imports(histories, folder):
    """A source that grew adds its new records. A redacted or erased source is refused."""
    write_source(folder, "used", 8)
    histories.import_(folder / "used.jsonl")
    assert len([*histories["used"].events()]) == 8
    for name in ("blanked", "erased source", "copied"):
        write_source(folder, name, 4)
        with pytest.raises(SourceRefused):
            histories.import_(folder / f"{name}.jsonl", prefix="again/")


def check_work(history):
    """An effect that a worker began stays unknown, and another worker takes the lease."""
    assert [effect.state for effect in history.effects()] == ["done", "unknown"]
    with history.lease(wait_s=0, worker="another worker"):
        history.settle(history.effects()[1].key, "the mail was sent", by="somebody")
        with pytest.raises(LeaseTaken):
            history._histories[history.id].lease(wait_s=0).__enter__()
    assert history.effects("unknown") == ()
