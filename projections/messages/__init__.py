"""Render the events of a View as the messages that a model's server accepts.

    SystemMessage          system
    Message                user or assistant, by its source; a message of the environment is a user
                           message, because many models accept a system message only at the
                           beginning
    Action                 assistant, with a tool call; the actions of one response are one message
    Observation            tool, right after the message that made the call, if servers require this
    Action of the user or the environment, with its Observation   user: the thought and the content
    CondensationSummary    user
    Annotation             user, if its writer marked it as shown: its name, then its data
    unknown                not sent to a model

Neighboring user messages become one message. A message without text, image or call is left out,
because servers refuse an empty message. A *dialect* is the form that one kind of server accepts:

    openai       OpenAI's chat completions, which many servers accept
    litellm      chat completions for litellm, which translates them for each provider: with
                 thinking blocks, and with images in tool messages
    anthropic    Anthropic's messages, without the system prompt: ``View.system_prompt`` returns it
    anthropic-cached    Anthropic's messages with marks up to which the server caches the prompt
    responses    items of OpenAI's Responses API, with the model's reasoning
    openai-reasoning    chat completions with the model's thinking as ``reasoning_content``, which
                        some servers require

``turns.py`` finds the turns of a conversation, ``growing.py`` keeps their messages with the View,
and ``requests.py`` has the request that a View becomes. If a dialect cannot express a content, a
text describes the content instead.
``tests/projections/chat_rules.py`` contains the rules of each dialect.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from foldlog._base.json_types import JsonObject
from foldlog.eventstore import Event
from foldlog.eventstore.codec_json import describe_value
from foldlog.projections.messages import anthropic, chat, responses
from foldlog.projections.messages.content import says_something
from foldlog.projections.messages.growing import BEGINNING, MessageList, Rendered, Rendering
from foldlog.projections.messages.turns import DIALECTS, Dialect, MessageTurn

__all__ = [
    "BEGINNING",
    "DIALECTS",
    "Dialect",
    "Rendered",
    "Rendering",
    "copy_messages",
    "render_events",
    "rendering",
    "says_something",
    "system_prompt",
    "with_positions",
]

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
    message at the beginning. Cost: rendering the events at the positions.
    """
    builder = rendering(dialect, opening=opening)
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
