"""Random stores of which conversations are erased or encrypted, or events redacted, and a search of every file for
their bytes.

python -m tests.crash bytes [--stores STORES] [--first SEED]
"""

from __future__ import annotations

import random
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import NamedTuple
from unittest.mock import patch

from pydantic import SecretStr

import foldlog.eventstore.log.importing
from foldlog._histories import Histories
from foldlog._reports import audit_database
from foldlog._search import SearchIndex
from foldlog.eventstore import (
    ANY_VERSION,
    Action,
    Annotation,
    Event,
    KeyRing,
    Message,
    Observation,
    Origin,
    Store,
    open_store,
)
from foldlog.eventstore.maintenance.backup import back_up, vacuum
from foldlog.eventstore.maintenance.erase import erase
from foldlog.eventstore.maintenance.rekey import rekey
from foldlog.eventstore.maintenance.verify import verify
from tests.crash.bytes_left import bytes_left
from tests.in_memory import in_memory

KEYS = KeyRing([SecretStr("11" * 32)])
_SIZES = (0, 1, 10, 30, 100, 200, 400, 900, 1_500, 4_000)
_STAGED_EVENTS = 10


def mark(kind: str, name: str) -> str:
    """What every few bytes of a conversation's texts repeat, so that a short part of one shows too. Names are so long
    that no random bytes, such as those of an encrypted text, are taken for one.
    """
    return f"{kind}{name}~"


class Secret(NamedTuple):
    """An event to be redacted, and what its text repeats."""

    conversation: str
    id: int
    mark: str


class RandomStore:
    """A store that one seed made: conversations that grew together, some of them imported in stages meanwhile, by two
    processes' worth of connections.
    """

    def __init__(self, path: Path, seed: int) -> None:
        self.rng = random.Random(seed)
        self.path = path
        self.url = f"sqlite:///{path}"
        self.names = [f"talk{n:02}" for n in range(self.rng.choice((2, 3, 8, 20)))]
        self._keyed = self.rng.choice((0.0, 0.5, 1.0))
        self._imports = self.rng.choice((0, 0, 1, 3))
        self._steps = self.rng.choice((40, 120, 250))
        self._numbers = 0

    @patch.object(foldlog.eventstore.log.importing, "CHUNK", _STAGED_EVENTS)
    def fill(self, stores: Sequence[Store]) -> None:
        appended = list(self.names)
        imports = set(self.rng.sample(range(self._steps), self._imports))
        for step in range(self._steps):
            if step in imports:
                name = f"import{step}"
                self.names.append(name)
                self.rng.choice(stores).ingest(name, self._history(stores, name, appended))
            else:
                self.append(self.rng.choice(stores), self.rng.choice(appended))

    def append(self, store: Store, name: str) -> None:
        events = [self._event(name) for _ in range(self.rng.choice((1, 1, 1, 2, 5)))]
        key = None
        if self.rng.random() < self._keyed:
            self._numbers += 1
            key = f"{self.rng.randrange(10**6)}-{self._numbers}-{self._text('k', name)[:600]}"
        store.append(name, events, expected_version=ANY_VERSION, idempotency_key=key)

    def append_secret(self, stores: Sequence[Store], number: int) -> Secret:
        """Append one event with a text of its own, among others and under a key that has the text too."""
        name, text = self.rng.choice(self.names), mark("s", f"ecret{number:02}")
        content = text * (1 + self.rng.choice(_SIZES) // len(text))
        event: Event = self.rng.choice(
            (
                Message(source="user", content=content),
                Annotation(name="note", data=[content]),
                Message(source="user", content=({"type": "raw", "data": content.encode()},)),
                Action(tool="t", arguments={"said": content}, thought=content, call_id="1"),
                Observation(tool="t", content="x", extras={"raw": content}, meta={"also": content}),
                Message(source="user", content="x", origin=Origin(format="f", id=content, rest={"raw": content})),
            )
        )
        batch = [event, self._event(name)][: self.rng.choice((1, 2))]
        key = content[:600] if self.rng.random() < 0.5 else None
        recorded = self.rng.choice(stores).append(name, batch, expected_version=ANY_VERSION, idempotency_key=key)
        return Secret(name, recorded[0].event.id, text)

    def _history(self, stores: Sequence[Store], name: str, appended: Sequence[str]) -> Iterator[Event]:
        for _ in range(self.rng.choice((15, 40, 120))):
            if self.rng.random() < 0.3:
                self.append(self.rng.choice(stores), self.rng.choice(appended))
            yield self._event(name)

    def _event(self, name: str) -> Event:
        content = self._text("b", name)
        kind = self.rng.random()
        if kind < 0.1:
            return Annotation(name="note", data=content)
        if kind < 0.2:
            return Annotation(name="raw", data=content.encode())
        return Message(source="user", content=content)

    def _text(self, kind: str, name: str) -> str:
        return mark(kind, name) * (1 + self.rng.choice(_SIZES) // len(mark(kind, name)))


def after_erasures(folder: Path, seed: int) -> list[str]:
    """What is left of some conversations once each is erased and vacuumed, in the store's files and a backup."""
    store = RandomStore(folder / "store.db", seed)
    with ExitStack() as stack:
        stores = [stack.enter_context(open_store(store.url, durability="relaxed")) for _ in range(2)]
        store.fill(stores)
        found = []
        names = [name for name in store.names if stores[0].version(name)]
        for name in store.rng.sample(names, min(3, len(names))):
            erase(store.rng.choice(stores), name, reason="asked to")
            if store.rng.random() < 0.3:
                continue  # the next vacuum is for this one too
            found += ["bytes pending"] * vacuum(store.rng.choice(stores)).bytes_pending
            back_up(stores[0], str(folder / "backup.db"))
            found += bytes_left(folder, [mark("b", name), mark("k", name)])
            (folder / "backup.db").unlink()
        vacuum(stores[0])
        found += bytes_left(folder, [mark(kind, name) for name in names if erased(stores[1], name) for kind in "bk"])
        found += [str(finding) for verdict in verify(stores[1]) for finding in verdict.findings]
    return found


def erased(store: Store, name: str) -> bool:
    return store.conversation(name).erased_at is not None


def after_encryption(folder: Path, seed: int) -> list[str]:
    """What is left of the plain bodies of a store once it is encrypted and vacuumed. Keys of appends stay plain."""
    store = RandomStore(folder / "store.db", seed)
    with ExitStack() as stack:
        stores = [stack.enter_context(open_store(store.url, durability="relaxed")) for _ in range(2)]
        store.fill(stores)
        compression = store.rng.choice(("none", "zlib"))
        sealed = stack.enter_context(open_store(store.url, keys=KEYS, compression=compression))  # type: ignore[arg-type]
        found = [f"{each.conversation}: damaged" for each in rekey(sealed) if each.damaged]
        found += ["bytes pending"] * vacuum(sealed).bytes_pending
        back_up(sealed, str(folder / "backup.db"))
        found += bytes_left(folder, [mark("b", name) for name in store.names])
        found += [str(finding) for verdict in verify(sealed) for finding in verdict.findings]
    return found


def after_redactions(folder: Path, seed: int) -> list[str]:
    """What is left of some events once each of them is redacted and vacuumed: in the store's files, in its search
    index, in an audit database and in a backup.
    """
    store = RandomStore(folder / "store.db", seed)
    with ExitStack() as stack:
        keys = KEYS if store.rng.random() < 0.2 else None
        opened = partial(open_store, store.url, durability="relaxed", keys=keys)
        stores = [stack.enter_context(opened()) for _ in range(2)]
        store.fill(stores)
        secrets = [store.append_secret(stores, n) for n in range(3)]
        for _ in range(store.rng.choice((0, 20, 100))):
            store.append(store.rng.choice(stores), store.rng.choice(store.names[:2]))
        if store.rng.random() < 0.5:
            stores[0].fork(secrets[0].conversation, secrets[0].id + 1, "fork")
        audit, found = folder / "audit.db", list[str]()
        if keys is None and store.rng.random() < 0.3:
            audit_database.update(stores[0], audit)
            with SearchIndex(stores[0]) as index:
                index.catch_up()
        for secret in secrets:
            with_summaries = store.rng.random() < 0.5
            receipt = Histories(store.rng.choice(stores))[secret.conversation].redact(
                secret.id, reason="asked to", with_summaries=with_summaries
            )
            unconfirmed = [name for name in receipt.unconfirmed if name != audit_database.name_of(audit)]  # comes next
            found += ["no bytes pending"] * (not receipt.bytes_pending) + unconfirmed
            if audit.exists():
                audit_database.update(stores[0], audit, [secret.conversation])
            found += ["bytes pending"] * vacuum(store.rng.choice(stores)).bytes_pending
            back_up(stores[0], str(folder / "backup.db"))
            found += bytes_left(folder, [secret.mark])
            (folder / "backup.db").unlink()
        found += [str(finding) for verdict in verify(stores[1]) for finding in verdict.findings]
    return found


WAYS = {"erasures": after_erasures, "encryption": after_encryption, "redactions": after_redactions}


def look(seed: int, way: str) -> list[str]:
    """What is left in a random store, made and searched in one of the ways."""
    with tempfile.TemporaryDirectory(prefix="foldlog-bytes-", dir=in_memory()) as folder:
        return WAYS[way](Path(folder), seed)


def run(stores: int, first: int) -> list[str]:
    """Look at so many random stores in each way; print a line for each way, and return what was left."""
    found = []
    for way in WAYS:
        left_in = [(seed, look(seed, way)) for seed in range(first, first + stores)]
        found += [f"{way}, seed {seed}: {line}" for seed, lines in left_in for line in lines]
        keeping = sum(bool(lines) for _, lines in left_in)
        print(f"{way}: bytes are left in {keeping} of {stores} random stores", flush=True)
    return found
