"""The agent's model: what counts tokens, its limit and its price."""

from __future__ import annotations

import importlib.util
from collections import Counter
from typing import TYPE_CHECKING, Annotated

import typer

from foldlog._cli import terminal
from foldlog._cli.outcome import Refused
from foldlog.eventstore import Store
from foldlog.projections import View, Views

if TYPE_CHECKING:
    from pathlib import Path

    from foldlog._figures.prices import Price, Prices
    from foldlog.condensers import LLM, AgentModel, Condenser

_TOKENIZER = "gpt-4o"
_SHORT_PROMPT = [{"role": "user", "content": "how many?"}]

AgentModelName = Annotated[
    str | None,
    typer.Option(
        "--agent-model",
        metavar="NAME",
        help=(
            "The model that the agent uses, such as openai/gpt-4o: its tokenizer counts tokens, and"
            " its limit is kept in Views that are condensed, and drawn in pages. Names are those of"
            " litellm."
        ),
        show_default=(
            "none: tokens are estimated, or shown as gpt-4o counts them; limits are estimated"
        ),
    ),
]


def named_model(name: str | None) -> LLM | None:
    """Return the model of that name; None without a name. A note says if litellm does not know it,
    so a mistyped one.

    Raises ``InvalidCondenser`` if litellm, which counts, is not installed, and ``TokensUnknown``
    without its tokenizer.
    """
    if name is None:
        return None
    from foldlog.condensers import LLM, LLMConfig

    if not name:
        raise Refused("--agent-model is empty; give the name of a model, such as openai/gpt-4o")
    model = LLM(LLMConfig(model=name))
    model.count_tokens(_SHORT_PROMPT)
    if not model.is_known:
        terminal.note(
            f"litellm does not know the model {model.model!r}: its tokens are counted as "
            f"{model.tokenizer} counts them, and its limit is not known"
        )
    return model


def counter_beside(model: LLM | None) -> LLM | None:
    """Return what counts tokens to show them: the agent's ``model``, or else a common one; None
    without litellm.

    Limits are never counted by it: if the agent's model is not named, ``prepare`` of an agent
    estimates them.
    """
    if model is not None or importlib.util.find_spec("litellm") is None:
        return model
    from foldlog.condensers import LLM, LLMConfig

    return LLM(LLMConfig(model=_TOKENIZER))


def counted_words(model: LLM) -> str:
    """Say what counts tokens, as the end of a sentence that begins with them."""
    name = model.model
    if model.tokenizer == model.model:
        return f"as {name} counts them"
    return f"as {model.tokenizer} counts them, since none is known for {name}"


def load_condenser_for(path: Path, model: AgentModel | None) -> Condenser:
    """Return the condenser of a file, with the agent's ``model`` in each place where it names no
    model.

    Raises ``InvalidCondenser``, and ``Refused`` if the file needs the agent's model and there is
    none.
    """
    from foldlog.condensers import InvalidCondenser, load_condenser

    condenser = load_condenser(path)
    try:
        return condenser.for_agent(model)
    except InvalidCondenser as error:
        raise Refused(f"{path}: {error}; here --agent-model NAME gives it") from error


def model_called(store: Store, conversation: str) -> str | None:
    """Return the model that the agent called most, if its replies name models. Cost: the events."""
    from foldlog._figures.counting import figures_of
    from foldlog._formats.usage import UNNAMED

    calls = Counter[str]()
    figures = figures_of(store, Views(store), store.conversation(conversation))
    for one in figures.calls:
        calls[one.model] += 0 if one.by_condenser else one.calls
    del calls[UNNAMED]
    return next((model for model, number in calls.most_common(1) if number), None)


def limit_by_log(view: View, model: AgentModel | None) -> int | None:
    """Return the limit of the default condenser if the log names the agent's model, and no option
    does.
    """
    from foldlog.condensers.models.limits import window_in
    from foldlog.condensers.strategies.summarizing import limit_of

    return limit_of(window_in(view)) if model is None else None


def price_of_agent(agent: str | None, table: Prices) -> tuple[Price, str]:
    """Return the price of the agent's model, and its name; if that is not known, the price of a
    model that has the proportions of most.
    """
    from foldlog._figures.prices import Price

    known = None if agent is None else table.of(agent)
    if known is not None and agent is not None:
        return known, agent
    unknown = "" if agent is None else f", since that of {agent} is not known"
    return Price(1e-6, 0.0, 1e-7), f"a model{unknown}"
