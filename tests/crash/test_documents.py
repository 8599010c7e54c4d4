"""Killed before any SQL statement: documents come with events, lists agree with them, an id is used
again whole.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import foldlog
from foldlog import Histories
from foldlog.eventstore import Message, open_store
from foldlog.eventstore.maintenance.erase import erase
from foldlog.eventstore.maintenance.verify import verify
from tests.crash.everywhere import before_statement, in_child


def run(path: Path) -> None:
    """Write documents and attributes, list, erase, and begin again. It can be done again from the
    start.
    """
    with foldlog.open(f"sqlite:///{path}") as histories:
        if "c1" not in ids_of_receipts(histories):
            history = histories["c1"]
            for n in range(2):
                said = Message(source="user", content=str(n))
                history.append(said, documents={"turn": {"n": n}}, idempotency_key=f"turn {n}")
                history.set_attributes(user=f"u{n}")
                histories.list(age_max_s=0)
            erase(histories.store, "c1", reason="asked for")
        row = histories.store.conversation("c1")
        if row.erased_at is not None:
            erase(histories.store, "c1", reason="asked for")
            histories.create("c1", {"user": "again"}, replace_erased=True)
        histories.list(age_max_s=0)


def ids_of_receipts(histories: Histories) -> list[str]:
    return [
        row.id
        for row in histories.store.conversations()
        if row.erased_at is not None or row.generation
    ]


def killed(path: Path, statement: int) -> bool:
    """Run in a child that kills itself before a statement. Return False where it ended before
    that.
    """

    def work() -> int:
        before_statement(statement)
        run(path)
        return 0

    ended = in_child(work)
    assert ended in (0, -signal.SIGKILL)
    return ended != 0


def problems(path: Path) -> Iterator[str]:
    with open_store(f"sqlite:///{path}") as store:
        for verdict in verify(store):
            yield from (
                str(f) for f in verdict.findings if "its erasure is not complete" not in str(f)
            )
        histories = Histories(store)
        for row in store.conversations():
            found = [one.id for one in histories.list(age_max_s=0).conversations]
            if row.erased_at is not None:
                yield from (f"the erased {one} is listed" for one in found)
                continue
            history = histories[row.id]
            said = [event.content for event in history.events() if isinstance(event, Message)]
            if history.document("turn") != ({"n": len(said) - 1} if said else None):
                yield f"{said} came with {history.documents()}"
            for attributes in ({"user": user} for user in ("u0", "u1", "again")):
                listed = [
                    one.id for one in histories.list(attributes, age_max_s=3600).conversations
                ]
                if listed != (["c1"] if history.attributes() == attributes else []):
                    yield (
                        f"{attributes} lists {listed}, and the attributes are"
                        f" {history.attributes()}"
                    )


def test_killed_before_any_statement(tmp_path: Path, whole: bool):
    statement = 1
    while True:
        path = tmp_path / f"{statement}.db"
        if not killed(path, statement):
            break
        if path.exists() and path.stat().st_size:
            assert (statement, list(problems(path))) == (statement, [])
        run(path)
        assert (statement, list(problems(path))) == (statement, [])
        with open_store(f"sqlite:///{path}") as store:
            row = store.conversation("c1")
            assert (statement, row.generation, row.version) == (statement, 1, 1)
        statement += 1 if whole else 29
    assert statement > 60
