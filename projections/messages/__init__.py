"""A View's events as the messages that a model's server accepts.

    SystemMessage          system
    Message                user or assistant, after its source; the environment speaks as user, since many models take
                           a system message only at the beginning
    Action                 assistant, with a tool call; the actions of one response are one message
    Observation            tool, right after the message that made the call, where servers insist on it
    Action that is not the agent's, and its Observation   user: the thought, if there is one, and the content
    CondensationSummary    user
    Annotation             user, if its writer marked it as shown: its name, then its data
    unknown                not sent to a model

Neighbouring user messages become one. A message without text, image or call is left out, because servers refuse it. A
*dialect* is the form that one kind of server accepts:

    openai       OpenAI's chat completions, and the many servers that speak the same
    litellm      the same for litellm, which translates it for each provider: with thinking blocks, and with images in
                 tool messages
    anthropic    Anthropic's messages; the system prompt is not among them, see ``View.system_prompt``
    anthropic-cached    the same with marks up to where the server keeps the prompt for the next one
    responses    items of OpenAI's Responses API, with the model's reasoning
    openai-reasoning    openai with the model's thinking as ``reasoning_content``, which some servers want back

``turns.py`` finds the turns of a conversation. What a dialect cannot say becomes a text that names it.
``tests/projections/chat_rules.py`` has the rules of each dialect.
"""

from __future__ import annotations

from collections.abc import Sequence

from foldlog.eventstore import Event
from foldlog.projections.messages import anthropic, chat, responses
from foldlog.projections.messages.content import says_something
from foldlog.projections.messages.turns import DIALECTS, Dialect, Rendered, turns

__all__ = ["DIALECTS", "Dialect", "Rendered", "rendered", "says_something", "system_prompt"]

system_prompt = anthropic.system_prompt


def rendered(
    events: Sequence[Event], positions: Sequence[int], dialect: Dialect = "litellm", *, opening: bool = True
) -> list[Rendered]:
    """Return the messages of the ``events`` at the ascending ``positions``, which must be fit for a model.

    Every tool call has one later tool message. If an id is used twice, the later call gets a new id. Equal events give
    equal messages. ``opening``: these are the first messages of a conversation. If they begin with the assistant, the
    dialects of litellm and Anthropic put a user's message before them, because most providers refuse them
    otherwise. Cost: the positions.
    """
    found = turns(events, positions)
    if dialect == "responses":
        return responses.messages_of(found)
    is_anthropics = dialect.startswith("anthropic")
    messages = anthropic.messages_of(found) if is_anthropics else chat.messages_of(found, dialect)
    messages = _opened(messages) if opening and (is_anthropics or dialect == "litellm") else messages
    return anthropic.cached(messages, events) if opening and dialect == "anthropic-cached" else messages


def _opened(messages: list[Rendered]) -> list[Rendered]:
    """Put a user's message before an assistant's that comes first."""
    first = next((place for place, each in enumerate(messages) if each.message["role"] != "system"), None)
    if first is not None and messages[first].message["role"] == "assistant":
        messages.insert(first, Rendered({"role": "user", "content": BEGINNING}, messages[first].positions[:1]))
    return messages


BEGINNING = "[The conversation before this point is not shown.]"
