"""Requests for a summary: as a prompt of its own, or as the agent's next prompt, which the server
has in its cache.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from msgspec import Struct, ValidationError, convert

from foldlog._base.telemetry import tell
from foldlog.condensers.base import CompletionOptions, Summarizer
from foldlog.condensers.models.caches import cache_rule
from foldlog.condensers.models.tokens import in_openais_shape, offered_tools
from foldlog.condensers.prompts import Prompt
from foldlog.condensers.prompts.rendering import clip_line, event_text
from foldlog.eventstore import Action, Message, SystemMessage
from foldlog.projections import Dialect, View
from foldlog.projections.messages.requests import REQUEST

Messages = Sequence[Mapping[str, Any]]

_QUOTED = 200
"""How many characters of the first event that stays a request quotes."""


class Request(NamedTuple):
    """A request for a summary. ``options`` are further arguments of ``Summarizer.complete``. If
    ``continues`` is true, the request continues the agent's prompt, and its tools are the agent's.
    """

    prompt: Prompt
    messages: Messages
    options: CompletionOptions
    continues: bool = False


def next_prompt(
    view: View, span: slice, llm: Summarizer | None, prompt: Prompt, **values: str
) -> Request:
    """Return a request for a summary of the events in ``span``. The request is the agent's next
    prompt, with ``prompt`` as its last message.

    The messages have the dialect of ``llm``, or else of the View. For Anthropic's dialects, the
    system prompt is the first message. The tools and instructions are those that the newest reply's
    request recorded, or else those of the View's ``SystemMessage``: without them, the server's
    cache has no prompt that begins like this one. The request forbids tool calls only if the
    provider then still reads its cache.
    """
    dialect: Dialect = getattr(llm, "dialect", view.dialect)
    is_anthropics = dialect.startswith("anthropic")
    messages = view.to_messages(dialect)
    beside = _recorded_beside(view)
    instructions = beside.parameters.get("instructions")
    if is_anthropics and view.system_prompt:
        messages.insert(0, {"role": "system", "content": view.system_prompt})
    elif instructions and not view.system_prompt:
        messages.insert(0, {"role": "system", "content": instructions})
    wish = prompt.messages(stays=_describe_rest(view, span), **values)[0]["content"]
    # All four marks for Anthropic's cache are set in the agent's messages.
    wish_dialect: Dialect = "anthropic" if is_anthropics else dialect
    messages += View.from_events((Message(id=0, source="user", content=wish),)).to_messages(
        wish_dialect
    )
    options: CompletionOptions = {}
    if tools := _tools(view, dialect, beside.tools):
        options["tools"] = tools
        if llm is not None and cache_rule(llm.model).tool_choice_is_apart:
            options["tool_choice"] = "none"
    elif any(isinstance(event, Action) for event in view):
        past = view.state.past
        tell(
            "foldlog.condensation.tools_unknown",
            conversation="" if past is None else past.conversation,
        )
    return Request(prompt, messages, options, continues=True)


class _Beside(Struct):
    """What is read of a recorded request, such as the document of ``SentBeside``."""

    tools: list[Any] = []
    parameters: dict[str, Any] = {}


def _recorded_beside(view: View) -> _Beside:
    past = view.state.past
    recorded = None if past is None else past.document(REQUEST)
    try:
        return convert(recorded, _Beside)
    except ValidationError:  # There is none, or another program has written it.
        return _Beside()


def _tools(view: View, dialect: Dialect, recorded: Sequence[Any]) -> Sequence[Any]:
    if dialect in ("openai", "openai-reasoning", "litellm"):
        return tuple(map(in_openais_shape, recorded)) or offered_tools(view)
    if recorded:
        return recorded
    return next((event.tools for event in view.events if isinstance(event, SystemMessage)), ())


def _describe_rest(view: View, span: slice) -> str:
    rest = view[span.stop :]
    if not rest:
        return ""
    beginning = clip_line(" ".join(event_text(rest[0]).split()), _QUOTED)
    return f"The newest part stays, and your text need not repeat it. It begins with: {beginning}"
