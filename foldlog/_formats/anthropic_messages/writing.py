"""Events to messages of Anthropic's API: parallel calls are one message."""

from __future__ import annotations

from typing import Any

from foldlog._formats.blocks import blocks_of, given
from foldlog._formats.claude_code.writing import result_of, use_of
from foldlog._formats.openai_chat import OpenAIChatEncoder
from foldlog.eventstore import Action, CondensationSummary, Event, Message, Observation, SystemMessage


class AnthropicEncoder(OpenAIChatEncoder):
    """Writes messages of events that have none: of the same events as a chat."""

    def _written(self, events: list[Event]) -> list[Any]:
        match events[0]:
            case Action():
                calls = [event for event in events if isinstance(event, Action)]
                said = [[*call.thinking, *blocks_of(call.thought), use_of(call)] for call in calls]
                return [{"role": "assistant", "content": [block for blocks in said for block in blocks]}]
            case Observation() as result:
                return [{"role": "user", "content": [result_of(result)]}]
            case Message(source="agent", thinking=thinking, content=content):
                return [{"role": "assistant", "content": [*thinking, *blocks_of(content)]}]
            case Message() | SystemMessage() | CondensationSummary() as said:  # there is no role of a system
                return [{"role": "user", "content": given(said.content)}]
        return []
