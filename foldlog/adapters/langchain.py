"""Chat histories of LangChain in foldlog: a ``BaseChatMessageHistory``.

    session = FoldlogChatMessageHistory("user-7", foldlog.open("history.db"))
    session.add_messages([HumanMessage("hello")])
    session.add_messages([model.invoke(session.messages)])

A session is a conversation in the format ``langchain``. By default, ``clear`` retracts the
messages, and they stay in the log. LangChain deprecates chat histories in favour of LangGraph's
checkpoints: see ``foldlog.adapters.langgraph``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any, Literal
from uuid import UUID

from langchain_core.callbacks import BaseCallbackHandler
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
    quote_id,
    sent_records,
    to_its_end,
    to_plain,
)
from foldlog.eventstore import ConversationErased
from foldlog.projections.messages.requests import SentBeside
from foldlog.runtimes import Recent

_FORMAT = "langchain"
_CALLS_IN_MEMORY = 1_000
"""The maximum number of model calls whose requests stay in memory until their replies are stored.
"""


class FoldlogRequests(BaseCallbackHandler):  # type: ignore[misc]
    """A callback that notes the tools and the system message of each model call, which foldlog
    records with the reply. The object may be used for many sessions.
    """

    def __init__(self) -> None:
        self._running = Recent[UUID, SentBeside](_CALLS_IN_MEMORY)
        """Maps a model call that has not ended to what was sent beside its messages."""
        self._answered = Recent[str, SentBeside](_CALLS_IN_MEMORY)
        """Maps the id of a reply to what was sent beside the messages of its call."""

    def on_chat_model_start(
        self, serialized: Any, messages: list[list[BaseMessage]], *, run_id: UUID, **kwargs: Any
    ) -> None:
        """Note what the model is sent beside its messages."""
        # A system message with an id belongs to the messages of the session.
        beside = [
            message.content
            for message in messages[0][:1]
            if message.type == "system" and message.id is None
        ]
        tools = kwargs.get("invocation_params", {}).get("tools") or ()
        self._running[run_id] = SentBeside(
            "openai",
            [to_plain(tool, unknown=True) for tool in tools],
            {"instructions": to_plain(beside[0])} if beside else {},
        )

    def on_llm_end(self, response: Any, *, run_id: UUID, **kwargs: Any) -> None:
        """Assign what was noted to the replies of the call."""
        beside = self._running.pop(run_id, None)
        for generation in response.generations[0]:
            if beside is not None:
                self._answered[generation.message.id] = beside

    def on_llm_error(self, error: BaseException, *, run_id: UUID, **kwargs: Any) -> None:
        """Forget what was noted, because the call has no reply."""
        self._running.pop(run_id, None)

    def of_replies(self, message_ids: Iterable[str | None]) -> SentBeside | None:
        """Return what was sent beside the messages of the calls that these messages answer, or None
        if that is not known, or differs between the calls.
        """
        noted = [self._answered[name] for name in message_ids if name and name in self._answered]
        return noted[0] if noted and all(beside == noted[0] for beside in noted) else None


class FoldlogChatMessageHistory(WithHistories, BaseChatMessageHistory):  # type: ignore[misc]
    """The messages of a session. ``RunnableWithMessageHistory``, which LangChain deprecates, also
    accepts a function that returns this object.

        session_id  the id of the session; the conversation's id is ``PREFIX/SESSION``, quoted as in
                    a URL
        histories   the URL of a store, or open histories, sync or async
        condense    whether ``messages`` condenses first, if a condensation is due
        clear       what ``clear`` does: ``"retract"`` keeps all messages in the log, ``"erase"``
                    removes their bytes
        attributes  attributes of a new conversation, such as ``{"user": "u7", "title": "Refunds"}``
        requests    the object that is also among the ``callbacks`` of the chain's config; then each
                    reply names its request

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
        requests: FoldlogRequests | None = None,
    ) -> None:
        WithHistories.__init__(self, histories, attributes)
        self._requests = requests or FoldlogRequests()
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
        """Return ``messages``. If the session was erased, read a session that began since."""
        for _ in range(2):
            with suppress(ConversationErased):
                records = sent_records(self.history, _FORMAT, condense=self._condense)
                return list(map(_message, records))
            # Another session with the same id may have begun since.
            self.history = self._sync[self.history.id]
        return []

    def add_messages(self, messages: Sequence[BaseMessage]) -> None:
        """Append all messages, or none if an error is raised. The messages are on disk when the
        method returns.

        Raises ``ConversationErased`` if other code erased the session after this object used it. If
        the session was erased earlier, a new session begins.
        """
        records = list(map(_record, messages))

        def append(history: History) -> Any:
            return history.append_records(records, format=_FORMAT)

        if records:
            replies = (message.id for message in messages)
            self.history._sent_beside = self._requests.of_replies(replies)
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

        A second copy adds only messages that are new in ``other``, also if both copies run at the
        same time. Raises ``ValueError`` if ``other`` does not begin with the messages of this
        session, for example after a condensation.
        """
        self.history, count = self._append_new_items(
            self.history.id, list(other.messages), "messages", _FORMAT, _message, _record
        )
        return count


def _record(message: BaseMessage) -> Any:
    return to_plain(message_to_dict(message))


def _message(record: Any) -> BaseMessage:
    message: BaseMessage = messages_from_dict([from_plain(record)])[0]
    return message
