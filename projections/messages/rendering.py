"""Make the messages of events, in the dialect of a server."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from foldlog._base.json_types import JsonObject
from foldlog.eventstore import Event
from foldlog.eventstore.codec_json import describe_value
from foldlog.projections.messages import anthropic, chat, responses
from foldlog.projections.messages.growing import MessageList, Rendered, Rendering
from foldlog.projections.messages.turns import Dialect, MessageTurn, check_dialect

system_prompt = anthropic.system_prompt


def render_events(
    events: Sequence[Event],
    positions: Sequence[int],
    dialect: Dialect = "litellm",
    *,
    opening: bool = True,
) -> list[Rendered]:
    """Return the messages of the events at ``positions``, in ascending order. Pass only events that
    a model's server accepts: see ``View.fit_positions``.

    Every tool call is followed by one tool message. If two calls have the same id, the later call
    gets a new id. Equal events make equal messages. ``opening`` is true if the messages are the
    first messages of a conversation. Most providers refuse messages that begin with the assistant.
    If the assistant speaks first, the dialects of litellm and Anthropic therefore add a user
    message at the beginning. Raises ``InvalidArgument`` if the dialect is unknown. Cost: rendering
    the events at the positions.
    """
    builder = rendering(check_dialect(dialect), opening=opening)
    builder.follow(events, positions)
    return with_positions(copy_messages(builder.messages, events, dialect), builder.messages)


def rendering(dialect: Dialect, *, opening: bool = True) -> Rendering:
    """Return an empty rendering."""

    def render(turns: Iterable[MessageTurn], at_the_beginning: bool) -> MessageList:
        if dialect == "responses":
            return responses.messages_of(turns)
        opens = opening and at_the_beginning
        if dialect.startswith("anthropic"):
            return anthropic.messages_of(turns, opening=opens)
        return chat.messages_of(turns, dialect, opening=opens)

    return Rendering(render)


def copy_messages(
    shared: Sequence[Rendered], events: Sequence[Event], dialect: Dialect
) -> list[JsonObject]:
    """Return copies of the messages in a rendering. The caller may change the copies.

    Only the copies get the marks for the server's prompt cache, because the marks move when a
    prompt grows. Cost: copying the messages.
    """
    copies: list[JsonObject] = msgspec.to_builtins(
        [message for message, _ in shared], enc_hook=describe_value
    )
    if dialect.startswith("anthropic"):
        anthropic.cut_trailing_space(copies)
    if dialect == "anthropic-cached":
        anthropic.mark_cached(copies, shared, events)
    if dialect == "litellm" or dialect.startswith("anthropic"):
        chat.limit_cache_marks(copies)
    return copies


def with_positions(copies: Sequence[JsonObject], shared: Sequence[Rendered]) -> list[Rendered]:
    """Return each copied message with the indices of the events from which it was made."""
    return [
        Rendered(message, positions) for message, (_, positions) in zip(copies, shared, strict=True)
    ]
