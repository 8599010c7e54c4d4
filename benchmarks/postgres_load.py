"""Load a store during a fault run, and check the acknowledged events. The load consists of writers
and followers. Further threads may erase. With keys, further threads also encrypt and rotate the key.
"""

from __future__ import annotations

import contextlib
import random
import secrets
import threading
import time
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from pydantic import SecretStr

from foldlog import Histories, LeaseTaken
from foldlog.eventstore import (
    ANY_VERSION,
    ConversationErased,
    EventStoreError,
    KeyRing,
    Message,
    Store,
    StoreUnavailable,
    open_store,
)
from foldlog.eventstore.maintenance.erase import erase
from foldlog.eventstore.maintenance.rekey import rekey
from foldlog.eventstore.maintenance.verify import verify

__all__ = ["WRITERS", "Follower", "Load", "Outcome", "check"]

WRITERS = 16
CONVERSATIONS_EACH = 20
_ROTATE_EVERY_S = 4.0
_ERASE_EVERY_S = 1.0
_CATCH_UP_S = 90.0
"""The longest wait of the follower at the end. A transaction that a killed server has prepared
holds back followers until it is resolved. Citus resolves it within a minute.
"""
_PLANTED_MAX = 40
_DRIVE_SHARE = 0.05
"""The share of appends that are made under the lease of one conversation."""
_BEGIN_SHARE = 0.05
"""The share of a writer's appends that begin a new conversation. Each writer has its own
conversations.
"""


def with_options(url: str, options: str) -> str:
    return f"{url}{'&' if '?' in url else '?'}{options}"


class Stores:
    """Open stores of one database, like the stores of several processes. New keys replace the
    stores. The old stores are closed as soon as no thread uses them.
    """

    def __init__(self, urls: Sequence[str], keys: KeyRing | None) -> None:
        self._urls = [with_options(url, f"connections_max={WRITERS}") for url in urls]
        self._changed = threading.Condition()
        self._users: Counter[Store] = Counter()
        self._open = self._opened(keys)

    @contextlib.contextmanager
    def use(self) -> Iterator[Store]:
        with self._changed:
            store = random.choice(self._open)
            self._users[store] += 1
        try:
            yield store
        finally:
            with self._changed:
                self._users[store] -= 1
                self._changed.notify_all()

    def replace(self, keys: KeyRing) -> None:
        """Open the stores with other keys. When ``replace`` returns, the old stores are closed."""
        new = self._opened(keys)
        with self._changed:
            before, self._open = self._open, new
            for store in before:
                self._changed.wait_for(lambda store=store: not self._users[store])  # type: ignore[misc]
                store.close()

    def close(self) -> None:
        for store in self._open:
            store.close()

    def _opened(self, keys: KeyRing | None) -> list[Store]:
        return [open_store(url, keys=keys) for url in self._urls]


class Acknowledged(NamedTuple):
    conversation: str
    id: int
    text: str


class Follower:
    """Follows a store from its beginning, and notes what it has read. With ``reopens``, it opens
    the store for each look, and resumes at the text of its last position.
    """

    def __init__(self, url: str, *, reopens: bool = False) -> None:
        self._url = with_options(url, "mode=ro&target_session_attrs=primary")
        self._reopens = reopens
        self.place: int = 0
        self.followed: set[tuple[str, int]] = set()
        self.again = 0
        """The number of events that the follower has read twice."""
        self.out_of_order = 0
        """The number of events that the follower has read after a later event of their
        conversation.
        """
        self._newest: dict[str, int] = {}

    def run(self, stop: threading.Event) -> None:
        while not stop.is_set():
            with open_store(self._url) as store:
                self.place = store._recorder.position(str(self.place))
                while True:
                    self._follow_on(store)
                    time.sleep(0.05)
                    if stop.is_set() or self._reopens:
                        break

    def catch_up(self, events: set[tuple[str, int]]) -> None:
        """Follow until all events are read, or until the patience ends."""
        with open_store(self._url) as store:
            until = time.monotonic() + _CATCH_UP_S
            self._follow_on(store)
            while not events <= self.followed and time.monotonic() < until:
                time.sleep(1)
                self._follow_on(store)

    def _follow_on(self, store: Store) -> None:
        for place, conversation, event_id in _positions(store, self.place):
            self.place = place
            if (conversation, event_id) in self.followed:
                self.again += 1
            elif event_id < self._newest.get(conversation, 0):
                self.out_of_order += 1
            else:
                self._newest[conversation] = event_id
            self.followed.add((conversation, event_id))


class Load:
    """Threads that append as fast as they can, note the acknowledged events, and follow the store.
    Each event has a different text.

    With ``encrypted``, the writers have keys. Other threads begin conversations without keys,
    rotate the key again and again as docs/PRIVACY.md describes, and erase. With ``erases``, other
    threads only begin conversations and erase them. The default is one follower, and two stores for
    the writers.
    """

    def __init__(
        self,
        url: str,
        *,
        encrypted: bool,
        erases: bool = False,
        writers_urls: Sequence[str] = (),
        followers: Sequence[Follower] = (),
    ) -> None:
        self._url = url
        self._secrets = [SecretStr(secrets.token_hex(32))] if encrypted else []
        self.stores = Stores(writers_urls or [url, url], self.keys)
        self._stop = threading.Event()
        self.acknowledged: list[Acknowledged] = []
        self.times: list[float] = []
        self.longest_s = 0.0
        """The duration of the longest append."""
        self.errors: list[str] = []
        self.followers = followers or [Follower(url)]
        self.erased: dict[str, bool] = {}
        """The conversations whose erasure began. The value says whether the erasure was
        acknowledged.
        """
        self.receipts: Counter[str] = Counter()
        """The number of erasures by their outcome: a receipt, a receipt whose bytes are pending, or
        the kind of an error, after which the erasure is repeated.
        """
        self.driven = 0
        """The number of events that were appended under a lease."""
        self.rotations = 0
        self.planted = 0
        self._plants: deque[str] = deque(maxlen=_PLANTED_MAX)
        tasks: list[Callable[[], None]] = [lambda n=n: self._write(n) for n in range(WRITERS)]  # type: ignore[misc]
        tasks += [lambda follower=follower: follower.run(self._stop) for follower in self.followers]  # type: ignore[misc]
        if encrypted or erases:
            tasks += [self._plant, self._erase]
        if encrypted:
            tasks.append(self._rotate)
        self._threads = [threading.Thread(target=self._run_watched, args=(task,)) for task in tasks]
        for thread in self._threads:
            thread.start()

    @property
    def keys(self) -> KeyRing | None:
        """The keys in use, the newest first. Until a rotation is complete, the previous key is in
        use too.
        """
        return KeyRing(self._secrets[::-1]) if self._secrets else None

    @property
    def events(self) -> int:
        return len(self.acknowledged)

    def finish(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()
        if self._secrets and not self.errors:
            self._rekey_everything()
        events = {
            (append.conversation, append.id)
            for append in self.acknowledged
            if append.conversation not in self.erased
        }
        for follower in self.followers:
            self._run_watched(lambda follower=follower: follower.catch_up(events))  # type: ignore[misc]
        self.stores.close()

    # -- the threads

    def _run_watched(self, task: Callable[[], None]) -> None:
        try:
            task()
        except Exception as error:  # noqa: BLE001 - whatever it is, the run has failed, and says so
            self.errors.append(f"{type(error).__name__}: {error}")

    def _write(self, writer: int) -> None:
        chance = random.Random(writer)
        versions = {f"w{writer}-{n}": 0 for n in range(CONVERSATIONS_EACH)}
        number = 0
        while not self._stop.is_set():
            # Of conversations that began plain, mostly the newest: several writers encrypt it at
            # the same time.
            plants = list(self._plants)[-chance.choice([1, 2, _PLANTED_MAX]) :]
            own = chance.random() < 0.7 or not plants
            if own and chance.random() < _BEGIN_SHARE:
                versions.pop(chance.choice(list(versions)))
                versions[f"w{writer}-new-{number}"] = 0
            conversation = chance.choice(list(versions) if own else plants)
            texts = [
                f"{conversation}/{writer}/{number + n}"
                for n in range(chance.choice([1, 1, 2, 5, 20]))
            ]
            number += len(texts)
            expected = chance.choice([versions[conversation], ANY_VERSION]) if own else ANY_VERSION
            key = chance.choice([None, f"turn-{writer}-{number}"])
            if chance.random() < _DRIVE_SHARE:
                self._drive(texts)
                continue
            events = [Message(source="user", content=text) for text in texts]
            began = time.monotonic()
            try:
                with self.stores.use() as store:
                    recorded = store.append(
                        conversation, events, expected_version=expected, idempotency_key=key
                    )
            except ConversationErased:
                if conversation not in self.erased:
                    raise
                continue
            self.times.append(time.monotonic())
            self.longest_s = max(self.longest_s, self.times[-1] - began)
            self._acknowledge(conversation, texts, [r.id for r in recorded])
            if own:
                versions[conversation] = recorded[-1].id + 1

    def _drive(self, texts: list[str]) -> None:
        """Append to a conversation under its lease. No other thread appends to this conversation,
        so the version that the worker read stays current.
        """
        with self.stores.use() as store:
            history = Histories(store)["driven"]
            with contextlib.suppress(LeaseTaken), history.lease(ttl_s=1, wait_s=0):
                for text in texts:
                    message = Message(source="user", content=text)
                    [recorded] = history.append(message, expected_version=history.version())
                    self.times.append(time.monotonic())
                    self._acknowledge("driven", [text], [recorded.id])
                    self.driven += 1

    def _acknowledge(self, conversation: str, texts: list[str], ids: list[int]) -> None:
        self.acknowledged.extend(
            Acknowledged(conversation, i, t) for i, t in zip(ids, texts, strict=True)
        )

    def _plant(self) -> None:
        """Begin unencrypted conversations, so that several writers try to be the first to encrypt
        such a conversation.
        """
        with open_store(with_options(self._url, "connections_max=2&plain=allowed")) as store:
            while not self._stop.is_set():
                conversation = f"plain-{self.planted}"
                self.planted += 1
                [recorded] = store.append(
                    conversation,
                    Message(source="user", content=f"{conversation}/0"),
                    expected_version=0,
                )
                self._acknowledge(conversation, [f"{conversation}/0"], [recorded.id])
                self._plants.append(conversation)
                time.sleep(0.005 if self._secrets else _ERASE_EVERY_S / 2)

    def _rotate(self) -> None:
        while not self._stop.wait(_ROTATE_EVERY_S):
            new = SecretStr(secrets.token_hex(32))
            self.stores.replace(
                KeyRing([*self._secrets[::-1], new])
            )  # every process must have the key before one process encrypts with it
            self._secrets.append(new)
            keys = self.keys
            assert keys is not None
            self.stores.replace(keys)
            self._rekey_everything()

    def _rekey_everything(self) -> None:
        """Rekey everything with two commands at the same time, then drop the old keys."""
        self._twice(self._rekey)
        if not self.errors:
            self._secrets = self._secrets[-1:]
            self.rotations += 1
            keys = self.keys
            assert keys is not None
            self.stores.replace(keys)

    def _twice(self, task: Callable[[], None]) -> None:
        threads = [threading.Thread(target=self._run_watched, args=(task,)) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _rekey(self) -> None:
        with open_store(with_options(self._url, "connections_max=2"), keys=self.keys) as store:
            _again_until_done(lambda: list(rekey(store)))

    def _erase(self) -> None:
        with open_store(with_options(self._url, "connections_max=2")) as store:
            while not self._stop.wait(_ERASE_EVERY_S):
                if not self._plants:
                    continue
                conversation = random.choice(list(self._plants))
                self.erased.setdefault(conversation, False)
                _again_until_done(lambda name=conversation: self._erase_one(store, name))  # type: ignore[misc]
                self.erased[conversation] = True
                with contextlib.suppress(ValueError):
                    self._plants.remove(conversation)

    def _erase_one(self, store: Store, conversation: str) -> None:
        began = time.monotonic()
        try:
            tombstone = erase(store, conversation, reason="asked to")
        except StoreUnavailable as error:
            self.receipts[error.kind] += 1
            state = getattr(error.__cause__, "sqlstate", None)
            print(f"erase, after {time.monotonic() - began:.1f} s: {error} ({state})", flush=True)
            raise
        self.receipts["receipt, bytes pending" if tombstone.bytes_pending else "receipt"] += 1


def _again_until_done(command: Callable[[], object]) -> None:
    """Run a command until it succeeds, because its error message says to run it again."""
    for _ in range(20):
        try:
            command()
        except StoreUnavailable:
            continue
        return
    command()


def _positions(store: Store, after: int) -> Iterator[tuple[int, str, int]]:
    """Follow the store without decoding the events, because a follower has no keys."""
    while True:
        page = store._recorder.query(lambda reader, after=after: reader.placed_rows(after, 1_000))
        yield from (
            (placed.position, placed.conversation, placed.row.id)
            for placed in page
            if not placed.is_entry
        )
        if len(page) < 1_000:
            return
        after = page[-1].position


class Outcome(NamedTuple):
    lost: int
    doubled: int
    unreadable: int
    missed: int
    read_twice: int
    out_of_order: int
    left: int
    """The number of erased conversations that still have data."""

    @property
    def is_clean(self) -> bool:
        return not any(self)


def check(url: str, load: Load) -> Outcome:
    """Check all acknowledged events, with only the newest key."""
    stored: dict[tuple[str, int], str] = {}
    texts: Counter[str] = Counter()
    unreadable = erased_texts = 0
    by_conversation = defaultdict(list)
    for append in load.acknowledged:
        by_conversation[append.conversation].append(append)
    with open_store(url, keys=load.keys) as store:
        for conversation in by_conversation:
            try:
                for event in store.events(conversation):
                    stored[conversation, event.id] = event.content
                    texts[event.content] += 1
                if load.erased.get(conversation):
                    erased_texts += 1
            except ConversationErased:
                erased_texts += _has_remains(store, conversation) or conversation not in load.erased
            except EventStoreError as error:
                print(f"{conversation}: {type(error).__name__}: {error}", flush=True)
                unreadable += 1
        for verdict in verify(store):
            for finding in verdict.findings:
                print(f"verify: {verdict.conversation}: {finding}", flush=True)
                unreadable += 1
    not_erased = [append for append in load.acknowledged if append.conversation not in load.erased]
    lost = sum(stored.get((append.conversation, append.id)) != append.text for append in not_erased)
    missed = 0
    for number, follower in enumerate(load.followers):
        unseen = [event for event in not_erased if event[:2] not in follower.followed]
        missed += len(unseen)
        if unseen:
            print(
                f"follower {number}, read up to {follower.place}: {_describe_unseen(url, unseen)}"
            )
    return Outcome(
        lost,
        sum(count - 1 for count in texts.values()),
        unreadable,
        missed,
        sum(follower.again for follower in load.followers),
        sum(follower.out_of_order for follower in load.followers),
        erased_texts,
    )


def _describe_unseen(url: str, unseen: Sequence[Acknowledged]) -> str:
    """Return the conversations, ids and positions of the first events that a follower missed."""
    with open_store(url) as store:
        placed = {(name, event_id): place for place, name, event_id in _positions(store, 0)}
    first = [f"{name} {event_id} at {placed.get((name, event_id))}" for name, event_id, _ in unseen]
    return f"{len(unseen)} unseen: {', '.join(first[:5])}"


def _has_remains(store: Store, conversation: str) -> bool:
    """Return whether anything of an erased conversation is left beside its tombstone."""
    with store._recorder.read() as reader:
        row = reader.conversation(conversation)
        if row is None or row.salt or row.key_id or row.sealed_key:
            return True
        return bool(reader.rows(row.key, 0, 2**62, 1) or reader.recalled(row.key, "", 1))
