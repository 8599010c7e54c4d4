"""Chat histories of LangChain in foldlog: a ``BaseChatMessageHistory``.

    histories = foldlog.open("history.db")
    chain = RunnableWithMessageHistory(
        model, lambda session_id: FoldlogChatMessageHistory(session_id, histories)
    )

A session is a conversation in the format ``langchain``. By default, ``clear`` retracts the
messages, and they stay in the log. Agents of LangGraph store their messages in checkpoints: see
``foldlog.adapters.langgraph``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any, Literal

from langchain_core.chat_history import BaseChatMessageHistory
from langchain_core.messages import BaseMessage, message_to_dict, messages_from_dict

from foldlog import History
from foldlog.adapters._shared import (
    Attributes,
    StoreOrUrl,
    WithHistories,
    empty_session,
    from_plain,
    in_thread,
    not_here_yet,
    quote_id,
    sent_records,
    to_its_end,
    to_plain,
)
from foldlog.eventstore import ConversationErased

_FORMAT = "langchain"


class FoldlogChatMessageHistory(WithHistories, BaseChatMessageHistory):  # type: ignore[misc]
    """The messages of a session. Return this object from the function that you pass to
    ``RunnableWithMessageHistory``.

        session_id  the id of the session; the conversation's id is ``PREFIX/SESSION``, quoted as in
                    a URL
        histories   the URL of a store, or open histories, sync or async
        condense    whether ``messages`` condenses first, if a condensation is due
        clear       what ``clear`` does: ``"retract"`` keeps all messages in the log, ``"erase"``
                    removes their bytes
        attributes  attributes of a new conversation, such as ``{"user": "u7", "title": "Refunds"}``

    If ``histories`` is a URL, ``close``, ``with`` or ``async with`` closes the store. If you make
    many objects of this class, pass open histories, so that all share one store. Many tasks,
    processes and objects may use the same conversation.
    """

    def __init__(
        self,
        session_id: str,
        histories: StoreOrUrl,
        *,
        condense: bool = False,
        clear: Literal["retract", "erase"] = "retract",
        prefix: str = _FORMAT,
        attributes: Attributes = None,
    ) -> None:
        WithHistories.__init__(self, histories, attributes)
        self.session_id = session_id
        self.history = self._sync[f"{prefix}/{quote_id(session_id)}"]
        self._condense = condense
        self._clear = clear

    @property
    def messages(self) -> list[BaseMessage]:
        """The messages that a model is shown, the oldest first. Condensed messages are replaced by
        a user message with the summary.

        Only the returned messages are read. Raises ``NoCondensationAvailable`` if a required
        condensation is impossible.
        """
        return self._read()

    def _read(self) -> list[BaseMessage]:
        for _ in range(2):
            with suppress(ConversationErased):
                return _messages(sent_records(self.history, _FORMAT, condense=self._condense))
            # Another session with the same id may have begun since.
            self.history = self._sync[self.history.id]
        return []

    def add_messages(self, messages: Sequence[BaseMessage]) -> None:
        """Append all messages, or none if an error is raised. The messages are on disk when the
        method returns.

        Raises ``ConversationErased`` if other code erased the session after this object used it. If
        the session was erased earlier, a new session begins.
        """
        records = [to_plain(message_to_dict(message)) for message in messages]

        def append(history: History) -> Any:
            return history.append_records(records, format=_FORMAT)

        if records:
            self.history, _ = self._append_or_begin(self.history, append)

    def clear(self) -> None:
        """Retract or erase all messages, depending on the argument ``clear`` of the class."""
        self.history = empty_session(self._sync, self.history.id, self._clear)

    aget_messages = in_thread(_read)
    aadd_messages = to_its_end(add_messages)
    aclear = to_its_end(clear)

    def copy_from(self, other: BaseChatMessageHistory) -> int:
        """Copy the messages of another history, such as a ``SQLChatMessageHistory``. Return the
        number of added messages.

        A second copy adds only messages that are new in ``other``. Raises ``ValueError`` if
        ``other`` does not begin with the messages of this session, for example after a
        condensation.
        """
        new = not_here_yet(self.session_id, self.messages, list(other.messages), "messages")
        self.add_messages(new)
        return len(new)


def _messages(records: Iterable[Any]) -> list[BaseMessage]:
    return [messages_from_dict([from_plain(record)])[0] for record in records]
