"""The agent's model, with which some commands count tokens."""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING, Annotated

import typer

from foldlog._cli import terminal
from foldlog._cli.outcome import Refused

if TYPE_CHECKING:
    from pathlib import Path

    from foldlog.condensers import LLM, AgentModel, Condenser

_TOKENIZER = "gpt-4o"
_SHORT_PROMPT = [{"role": "user", "content": "how many?"}]

AgentModelName = Annotated[
    str | None,
    typer.Option(
        "--agent-model",
        metavar="NAME",
        help="The agent's model, by its name in litellm: count its tokens, and keep to its limits.",
        show_default=f"none: tokens as {_TOKENIZER} counts them, and no limit",
    ),
]


CountingModelName = Annotated[
    str | None,
    typer.Option(
        "--agent-model",
        metavar="NAME",
        help="The agent's model, as litellm knows it: its tokenizer counts tokens, and its limit is drawn.",
        show_default="none: tokens are estimated",
    ),
]


DrawnLimit = Annotated[
    int | None,
    typer.Option(
        "--limit", metavar="TOKENS", min=1, help="Draw a line at this number of tokens.", show_default="no limit"
    ),
]


def counting_model(name: str | None, limit: int | None) -> tuple[LLM | None, int | None]:
    """Return the model of that name, whose tokenizer counts, and the limit to draw: its own if none is given. The model
    is None, with a note, if the tokenizer is missing.

    Raises ``InvalidCondenser`` if litellm, which counts, is not installed.
    """
    if name is None:
        return None, limit
    from foldlog.condensers import TokensUnknown

    model = _named(name)
    try:
        model.count_tokens(_SHORT_PROMPT)
    except TokensUnknown as error:
        terminal.note(f"tokens are estimated: {error}")
        return None, limit
    _say_if_unknown(model)
    return model, model.max_input_tokens if limit is None else limit


def _named(name: str) -> LLM:
    from foldlog.condensers import LLM, LLMConfig

    if not name:
        raise Refused("--agent-model is empty; give the name of a model, such as openai/gpt-4o")
    return LLM(LLMConfig(model=name))


def agent_model(name: str | None) -> LLM | None:
    """Return the model of that name. Without a name, return one that counts tokens and has no limit, or None if
    litellm, which counts, is not installed. Raises ``InvalidCondenser`` if a name is given and litellm is not
    installed.
    """
    if name is None and importlib.util.find_spec("litellm") is None:
        return None
    from foldlog.condensers import LLM, LLMConfig

    class Tokenizer(LLM):
        """A model without a name that only counts tokens: so a strategy that counts events where no limit is known does
        so.
        """

        @property
        def max_input_tokens(self) -> int | None:
            return None

    if name is None:
        return Tokenizer(LLMConfig(model=_TOKENIZER))
    model = _named(name)
    _say_if_unknown(model)
    return model


def _say_if_unknown(model: LLM) -> None:
    """Tell of a name that litellm does not know, such as a mistyped one, or a model of this machine."""
    from foldlog.condensers import TokensUnknown

    if model.is_known:
        return
    try:
        model.count_tokens(_SHORT_PROMPT)
        tokens = f"its tokens are counted with the tokenizer {model.tokenizer}"
    except TokensUnknown:
        tokens = "its tokens cannot be counted"
    terminal.note(f"litellm does not know the model {model.model!r}: {tokens}, and its limit is not known")


def counted_words(model: LLM) -> str:
    """Say what counts tokens, as the end of a sentence that begins with them."""
    name = terminal.printable(model.model, one_line=True)
    if model.tokenizer == model.model:
        return f"as {name} counts them"
    return f"as the tokenizer {model.tokenizer} counts them, since none is known for {name}"


def load_condenser_for(path: Path, agent: str | None, model: AgentModel | None) -> Condenser:
    """Return the condenser of a file, with ``model`` in each place where it names no model.

    Raises ``InvalidCondenser``, and ``Refused`` if the file needs the agent's model and ``agent`` names none: a model
    that only counts is never asked.
    """
    from foldlog.condensers import InvalidCondenser, load_condenser

    condenser = load_condenser(path)
    try:
        return condenser.for_agent(None if agent is None else model)
    except InvalidCondenser as error:
        raise Refused(f"{path}: {error}; here --agent-model NAME gives it") from error
