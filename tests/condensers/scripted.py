"""A model with scripted answers, and one whose tokens are characters: no strategy is tested over a
network.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from typing import Any

from foldlog.condensers import ModelCallFailed, Reply, TokensUnknown, ToolCall
from foldlog.condensers.prompts.rendering import event_text
from foldlog.condensers.strategies.state_fields import FIELDS, TOOL_NAME
from foldlog.projections import View

FULL_STATE = {name: name.replace("_", " ") for name in FIELDS}


def said(text: str | None, **fields: Any) -> Reply:
    return Reply(
        text=text,
        **{
            "model": "scripted",
            "response_id": "r1",
            "finish_reason": "stop",
            "cost": 0.01,
            **fields,
        },
    )


def called(arguments: Any, tool: str = TOOL_NAME) -> Reply:
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return said(None, tool_calls=(ToolCall(tool, text),), finish_reason="tool_calls")


def failed(failure: str = "refused", problem: str = "boom") -> ModelCallFailed:
    return ModelCallFailed(
        "scripted", failure, problem, {"model": "scripted", "failure": failure, "problem": problem}
    )


Answer = str | None | Reply | ModelCallFailed


class Scripted:
    """Answers with these replies in turn, the last one again and again, and keeps what it was
    asked.
    """

    model = "scripted"

    def __init__(
        self,
        *answers: Answer,
        function_calling: bool = True,
        response_schema: bool = True,
        meanwhile: Callable[[], None] = lambda: None,
    ) -> None:
        self.answers = answers or ("a summary",)
        self.calls: list[Sequence[Mapping[str, Any]]] = []
        self.asked_how: list[dict[str, Any]] = []
        self.supports_function_calling = function_calling
        self.supports_response_schema = response_schema
        self.meanwhile = meanwhile

    def complete(self, messages: Sequence[Mapping[str, Any]], **how: Any) -> Reply:
        answer = self.answers[min(len(self.calls), len(self.answers) - 1)]
        self.calls.append(messages)
        self.asked_how.append(how)
        self.meanwhile()
        if isinstance(answer, ModelCallFailed):
            # The error may be raised again. It then has reports of the step that raised it before.
            answer.reports = (answer.report,)
            raise answer
        return answer if isinstance(answer, Reply) else said(answer)

    def prompt(self, call: int = -1) -> str:
        return "\n".join(message["content"] for message in self.calls[call])


class Characters:
    """An agent's model whose tokens are the characters of what it is shown."""

    model = "characters"
    max_output_tokens: int | None = None

    def __init__(
        self,
        max_input_tokens: int | None = None,
        max_output_tokens: int | None = None,
        *,
        unknown: bool = False,
    ) -> None:
        self.max_input_tokens = max_input_tokens
        self.max_output_tokens = max_output_tokens
        self.unknown = unknown

    def token_sums(self, view: View) -> list[int]:
        if self.unknown:
            raise TokensUnknown("nobody can count these tokens")
        return list(accumulate((len(event_text(event)) for event in view), initial=0))


class Weights(Characters):
    """An agent's model to which each event has the same number of tokens, and each summary."""

    def __init__(self, event: int, summary: int, max_input_tokens: int | None = None) -> None:
        super().__init__(max_input_tokens)
        self.event = event
        self.summary = summary

    def token_sums(self, view: View) -> list[int]:
        tokens = (self.summary if event.id < 0 else self.event for event in view)
        return list(accumulate(tokens, initial=0))


class AskableAgent(Scripted, Characters):
    """An agent's model that can be asked for a summary, too."""

    unknown = False

    def __init__(
        self, max_input_tokens: int | None, *answers: Answer, dialect: str = "litellm"
    ) -> None:
        super().__init__(*answers)
        self.max_input_tokens = max_input_tokens
        self.dialect = dialect
