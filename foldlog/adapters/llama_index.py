"""Chat stores of LlamaIndex in foldlog: a ``BaseChatStore``.

    store = FoldlogChatStore(histories="sqlite:///history.db")
    memory = ChatMemoryBuffer.from_defaults(chat_store=store, chat_store_key="user-7")

The messages under a key are a conversation in the format ``llama-index``. If ``delete_message``
deletes messages or ``set_messages`` replaces them, foldlog forgets or retracts them, and they stay
in the log.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from hashlib import blake2b
from typing import Any, Literal, NamedTuple

from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.bridge.pydantic import ConfigDict, PrivateAttr
from llama_index.core.storage.chat_store.base import BaseChatStore

from foldlog import History
from foldlog.adapters._records.llama_index import NAME
from foldlog.adapters._shared import (
    Attributes,
    SentRecords,
    StoreOrUrl,
    WithHistories,
    below,
    empty_session,
    in_thread,
    quote_id,
    sent_records,
    sent_whole,
    shown_records,
    to_its_end,
    unquote_id,
)
from foldlog.eventstore import ConversationErased, Event, Seen, VersionConflict
from foldlog.projections import View
from foldlog.runtimes import Fields, Recent, change_of_prompt, json_of, staying

_REASON = "the runtime took these messages out of its list"
_LISTS_IN_MEMORY = 256
"""The maximum number of keys whose last read messages are remembered."""


class _Shown(NamedTuple):
    """The record of a shown message, and the ids of its events."""

    ids: list[int]
    record: Any


class _Read(NamedTuple):
    """The messages that ``get_messages`` returned last. ``version`` is the version of their View.
    ``seen`` was read before them. ``hashes`` maps the first event id of each message to a hash of
    the message's record.
    """

    version: int
    seen: Seen
    hashes: dict[int, bytes]


# The SDK is not installed where types are checked.
class FoldlogChatStore(BaseChatStore):  # type: ignore[misc]
    """Stores the messages of chats. LlamaIndex has a key for each chat.

        histories   the URL of a store, or open histories, sync or async
        condense    whether ``get_messages`` condenses first, if a condensation is due
        clear       what ``delete_messages`` does: ``"retract"`` keeps all messages in the log,
                    ``"erase"`` removes their bytes
        attributes  attributes of each new conversation, such as ``{"user": "u7"}``

    If ``histories`` is a URL, ``close``, ``with`` or ``async with`` closes the store. The messages
    of a key are stored in the conversation ``PREFIX/KEY``, where the key is quoted as in a URL.
    Many threads, processes and stores may use the same conversation.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True)
    condense: bool = False
    clear: Literal["retract", "erase"] = "retract"
    prefix: str = NAME
    _opened: WithHistories = PrivateAttr()
    _read: Recent[str, _Read] = PrivateAttr()
    _erased: Recent[str, list[tuple[bytes, Any]]] = PrivateAttr()
    """Maps a key to the result of ``_present_records`` directly before this object erased the
    messages of the key. ``get_messages`` removes the entry of its key.
    """

    def __init__(
        self, histories: StoreOrUrl, *, attributes: Attributes = None, **settings: Any
    ) -> None:
        super().__init__(**settings)
        self._opened = WithHistories(histories, attributes)
        self._read = Recent[str, _Read](_LISTS_IN_MEMORY)
        self._erased = Recent[str, list[tuple[bytes, Any]]](_LISTS_IN_MEMORY)

    @classmethod
    def class_name(cls) -> str:
        """Return LlamaIndex's name for this class."""
        return "FoldlogChatStore"

    def history(self, key: str) -> History:
        """Return the history of a key's messages."""
        return self._opened._sync[f"{self.prefix}/{quote_id(key)}"]

    def get_messages(self, key: str) -> list[ChatMessage]:
        """Return the messages that a model is shown, the oldest first. Condensed messages are
        replaced by a user message with the summary. Only the returned messages are read.
        """
        history = self.history(key)
        self._read.pop(key, None)
        self._erased.pop(key, None)
        with suppress(ConversationErased):
            # ``set_messages`` may get these messages again.
            seen = history._seen()
            sent = list(_sent(history, condense=self.condense))
            if seen.key and history._asked_at is not None:
                hashes = {record.ids[0]: _hash(record.record) for record in sent}
                self._read[key] = _Read(history._asked_at, seen, hashes)
            return [_message(record.record) for record in sent]
        return []

    def add_message(self, key: str, message: ChatMessage) -> None:
        """Append a message. The message is on disk when the method returns."""
        records = [_record(message)]

        def append(history: History) -> Any:
            return history.append_records(records, format=NAME)

        self._opened._append_or_begin(self.history(key), append)

    def set_messages(self, key: str, messages: list[ChatMessage]) -> None:
        """Replace the messages of a key, in one transaction.

        Old messages that ``messages`` repeats at its beginning stay. All further old messages are
        retracted or forgotten, and the new messages are appended. A message that was redacted after
        ``get_messages`` is stored in its redacted form. Raises ``ConversationErased`` if other code
        erased the messages after ``get_messages``: get the messages again.
        """
        new_records = list(map(_record, messages))
        history = self.history(key)
        if (read := self._read.get(key)) is not None:
            # If other code has erased the conversation and begun a new one under its id, the append
            # then raises ``ConversationErased``.
            history._binding.key = read.seen.key

        def change(history: History) -> None:
            def others(shown: Sequence[_Shown]) -> tuple[list[int], list[Any]]:
                records = self._as_redacted(key, history, new_records)
                stay = staying([record.record for record in shown], records)
                return stay, records[len(stay) :]

            _change(history, others)

        self._opened._append_or_begin(history, change)

    def _as_redacted(self, key: str, history: History, records: list[Any]) -> list[Any]:
        """Return the records. A record whose message was redacted after ``get_messages`` is
        replaced by its redacted form.
        """
        # Equal messages are found in their order.
        forms = defaultdict[bytes, deque[Any]](deque)
        for message_hash, record in self._erased.get(key) or self._present_records(key, history):
            forms[message_hash].append(record)
        present = [(record, forms[_hash(record)]) for record in records]
        return [forms_left.popleft() if forms_left else record for record, forms_left in present]

    def _present_records(self, key: str, history: History) -> list[tuple[bytes, Any]]:
        """Return the hash and the present record of each message that ``get_messages`` returned.
        Return an empty list if no message was redacted since.
        """
        read = self._read.get(key)
        now = history._seen()
        if read is None or read.seen.is_unredacted_in(now) or now.key != read.seen.key:
            return []
        return [
            (read.hashes[record.ids[0]], record.record)
            for record in _shown(history, history.at(read.version))
            # A message that the condenser hid was not returned.
            if record.ids[0] in read.hashes
        ]

    def delete_message(self, key: str, idx: int) -> ChatMessage | None:
        """Forget the message at the index ``idx`` and return it, or return None if ``idx`` is out
        of range.
        """
        deleted = list[Any]()

        def others(shown: Sequence[_Shown]) -> tuple[list[int], list[Any]]:
            places = list(range(len(shown)))
            deleted.clear()  # another writer may have appended since the last call
            if -len(shown) <= idx < len(shown):
                deleted.append(shown[idx].record)
                places.pop(idx)
            return places, []

        with suppress(ConversationErased):
            _change(self.history(key), others)
        return _message(deleted[0]) if deleted else None

    def delete_last_message(self, key: str) -> ChatMessage | None:
        """Retract the last message and return it, or return None if the key has no message."""
        return self.delete_message(key, -1)

    def delete_messages(self, key: str) -> list[ChatMessage] | None:
        """Retract or erase all messages of a key, depending on the store's argument ``clear``.
        Return the messages, or None if there are none.
        """
        history = self.history(key)
        messages = list[ChatMessage]()
        with suppress(ConversationErased):
            messages += map(_message, sent_records(history, NAME, condense=self.condense))
            if self.clear == "erase":
                self._erased[key] = self._present_records(key, history)
                self._read.pop(key, None)
        empty_session(self._opened._sync, history.id, self.clear)
        return messages or None

    def get_keys(self) -> list[str]:
        """Return the keys that have messages, in alphabetical order. The View of every key
        is read.
        """
        start = f"{self.prefix}/"
        rows = below(self._opened._sync, start)
        return sorted(
            unquote_id(row.id.removeprefix(start)) for row in rows if self._has_messages(row.id)
        )

    def _has_messages(self, conversation: str) -> bool:
        """Return whether a conversation has messages. It may have been erased after it was
        listed.
        """
        with suppress(ConversationErased):
            return bool(self._opened._sync[conversation].view())
        return False

    def close(self) -> None:
        """Close the store if this object opened the store by its URL."""
        self._opened.close()

    def __enter__(self) -> FoldlogChatStore:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    async def __aenter__(self) -> FoldlogChatStore:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._opened.__aexit__(*error)

    @property
    def histories(self) -> Any:
        """The async interface of the store's histories."""
        return self._opened.histories

    aget_messages = in_thread(get_messages)
    async_add_message = to_its_end(add_message)
    aset_messages = to_its_end(set_messages)
    adelete_message = to_its_end(delete_message)
    adelete_last_message = to_its_end(delete_last_message)
    adelete_messages = to_its_end(delete_messages)
    aget_keys = in_thread(get_keys)


def _change(
    history: History, decide: Callable[[Sequence[_Shown]], tuple[list[int], list[Any]]]
) -> None:
    """Change the messages that a View shows.

    ``decide(shown)`` returns the indices of the messages that stay, and the records of new
    messages.
    """
    while True:
        view = history.view()
        recorder = history._recorder(NAME, view.version)
        shown = list(_shown(history, view))
        places, records = decide(shown)
        stay = [event_id for place in places for event_id in shown[place].ids]
        condensed_at = max((condensation.id for condensation in view.condensations), default=-1)
        before = [event.id for event in view]
        change = change_of_prompt(
            before, stay, condensed_at=condensed_at, metadata={"reason": _REASON}
        )
        events: list[Event] = [] if change is None else [change]
        recorder.skip(len(events))
        events += recorder.decode_all(records)
        if not events:
            return
        with suppress(VersionConflict):  # another writer appended
            history._append_recorded(events, recorder, view.seen)
            return


def _shown(history: History, view: View) -> Iterator[_Shown]:
    """Yield the messages that a View shows, with the ids of their events."""
    for events, records in shown_records(view, NAME, history):
        for record in records[:1]:
            yield _Shown([event.id for event in events], record)


def _sent(history: History, *, condense: bool) -> Iterator[_Shown]:
    """Yield the records that are sent to a model, with the ids of their events."""
    whole = None if condense else sent_whole(history, NAME)
    if whole is not None:
        for span, record in zip(whole.spans, whole.records(), strict=True):
            yield _Shown([*range(span.start, span.stop)], record)
        return
    prompt = SentRecords(history, condense=condense)
    for events, records in prompt.records(prompt.view, NAME):
        for record in records:
            yield _Shown([event.id for event in events], record)


def _hash(record: Any) -> bytes:
    return blake2b(json_of(record), digest_size=16).digest()


def _record(message: ChatMessage) -> Fields:
    record: Fields = message.model_dump(mode="json")
    return record


def _message(record: Any) -> ChatMessage:
    return ChatMessage.model_validate(record)
