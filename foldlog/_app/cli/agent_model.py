"""The agent's model: its tokenizer, its limit and its price."""

from __future__ import annotations

import importlib.util
from collections import Counter
from typing import TYPE_CHECKING

from foldlog._app.cli import terminal
from foldlog._app.cli.command_line import option
from foldlog._app.cli.exit_status import Refused
from foldlog.eventstore import Store
from foldlog.projections import View, Views

# The functions import what most programs need not load when they start.
if TYPE_CHECKING:
    from pathlib import Path

    from foldlog._reports.figures.prices import Price, Prices
    from foldlog.condensers import LLM, AgentModel, Condenser

_TOKENIZER = "gpt-4o"
"""The model that counts tokens for the output of a command without an agent's model."""
_SHORT_PROMPT = [{"role": "user", "content": "how many?"}]

agent_model_option = option(
    "--agent-model agent",
    "NAME",
    "The model that the agent uses, such as openai/gpt-4o. The tokenizer of this"
    " model counts tokens. Condensed Views stay within the token limit of this model, and"
    " pages show the limit as a line. Use the model names of litellm.",
    show_default=(
        "none: limits and tokens are estimated; if litellm is installed, condense and compare count"
        " tokens with the tokenizer of gpt-4o"
    ),
)


def named_model(name: str | None) -> LLM | None:
    """Return the model ``name``. Without a name, return None. If litellm does not know the model,
    print a note, because the name may be mistyped.

    Raises ``InvalidCondenser`` if litellm is not installed, because litellm counts tokens. Raises
    ``TokensUnknown`` if the tokenizer of the model cannot be loaded.
    """
    if name is None:
        return None
    from foldlog.condensers import LLM, LLMConfig

    if not name:
        raise Refused("--agent-model is empty; use the name of a model, such as openai/gpt-4o")
    model = LLM(LLMConfig(model=name))
    model.count_tokens(_SHORT_PROMPT)
    if not model.is_known:
        terminal.note(
            f"litellm does not know the model {model.model!r}, so its tokens are counted with "
            f"{model.tokenizer}, and its limit is unknown"
        )
    return model


def counter_beside(model: LLM | None) -> LLM | None:
    """Return the model whose tokenizer counts tokens for the output of a command. Without
    ``model``, return gpt-4o, or None if litellm is not installed.

    The caller must not pass gpt-4o to a condenser. Without ``model``, condensers compare estimated
    tokens with their limits.
    """
    if model is not None or importlib.util.find_spec("litellm") is None:
        return model
    from foldlog.condensers import LLM, LLMConfig

    return LLM(LLMConfig(model=_TOKENIZER))


def counted_words(model: LLM) -> str:
    """Say who counts the tokens."""
    name = model.model
    if model.tokenizer == model.model:
        return f"as {name} counts them"
    return f"as {model.tokenizer} counts them, because the tokenizer of {name} is unknown"


def load_condenser_for(path: Path, model: AgentModel | None) -> Condenser:
    """Load a condenser from a file. A summarizer without a model uses the agent's ``model``.

    Raises ``InvalidCondenser`` for an invalid file. Raises ``Refused`` if the file needs the
    agent's model and ``model`` is None.
    """
    from foldlog.condensers import InvalidCondenser, load_condenser

    condenser = load_condenser(path)
    try:
        return condenser.for_agent(model)
    except InvalidCondenser as error:
        raise Refused(f"{path}: {error}; in this command, use --agent-model NAME") from error


def model_called(store: Store, conversation: str) -> str | None:
    """Return the model that the agent called most. Return None if no reply names a model. Cost: the
    function reads all events of the conversation.
    """
    from foldlog._reports.figures.counting import figures_of
    from foldlog.formats.model_calls import UNNAMED

    calls = Counter[str]()
    figures = figures_of(store, Views(store), store.conversation(conversation))
    for model_row in figures.calls:
        calls[model_row.model] += 0 if model_row.by_condenser else model_row.calls
    del calls[UNNAMED]
    return next((model for model, number in calls.most_common(1) if number), None)


def limit_by_log(view: View, model: AgentModel | None) -> int | None:
    """Return the token limit of the model that the log names. Return None if the user named a
    ``model``, or if the log names no model.
    """
    from foldlog.condensers.models.limits import window_in
    from foldlog.condensers.strategies.summarizing import limit_of

    return limit_of(window_in(view)) if model is None else None


def price_of_agent(agent: str | None, table: Prices) -> tuple[Price, str]:
    """Return the price and the name of the agent's model. If the price is unknown, return an
    example price, in which a cached token costs a tenth of a new token.
    """
    from foldlog._reports.figures.prices import Price

    price = None if agent is None else table.of(agent)
    if price is not None and agent is not None:
        return price, agent
    unknown = "" if agent is None else f", because the price of {agent} is unknown"
    return Price(1e-6, 0.0, 1e-7), f"a model{unknown}"
