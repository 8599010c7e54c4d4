"""``foldlog compare``: replay a history with several condensers."""

from __future__ import annotations

import shlex
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import UNSET, UnsetType

from foldlog._app.cli import terminal
from foldlog._app.cli.agent_model import (
    agent_model_option,
    counter_beside,
    limit_by_log,
    model_called,
    named_model,
    price_of_agent,
)
from foldlog._app.cli.exit_status import Refused
from foldlog._app.cli.options import (
    conversation_argument,
    force_option,
    option,
    output_option,
    prices_option,
    store_options,
)
from foldlog._app.cli.printing.comparison import show_comparison, show_curve
from foldlog._app.cli.replaying import condensers_of, curve_of, replays_of
from foldlog._app.cli.stores import open_existing, resolve
from foldlog._reports.answers.comparison import ComparisonDocument, CurvePointDocument
from foldlog._reports.answers.figures import TaskDocument
from foldlog._reports.comparison import comparison, describe_condenser, verdict_of
from foldlog._reports.words.gist import task_words
from foldlog.eventstore import Store
from foldlog.projections import Views

if TYPE_CHECKING:
    from foldlog._reports.figures.prices import Prices


@conversation_argument
@option(
    "--config configs",
    "FILE",
    "A TOML file with [condenser]. Use the option once for each file. The default "
    "condenser and noop, which forgets nothing, are always compared.",
    multiple=True,
    show_default="a digest limited to 32,000 tokens; if that is the default, to 80 events",
)
@output_option(
    "--curve",
    help="Draw a plot into this file. For several strategies and sizes, it shows how many "
    "tokens a prompt has, and which share of the needed terms it shows.",
)
@force_option
@agent_model_option
@prices_option
@store_options
def run(
    conversation: str,
    configs: tuple[Path, ...],
    curve: Path | None,
    force: bool,
    agent: str | None,
    prices: Path | None,
    db: str,
) -> None:
    """Replay a conversation with several condensers. Show the condenser that costs least, and what
    every condenser drops.

    The column "as recorded" shows the effect of the recorded condensations. The replays ignore
    these condensations. If a condenser needs a model, the command calls that model. No history is
    changed. The cost includes all prompts to the agent's model and to the condenser's model. If a
    prompt repeats the beginning of the previous prompt, the provider's cache reads the repeated
    tokens. For summaries by a model, the table compares prompts of their own with the agent's next
    prompts (prompt = "continue"). The command looks up the price of --agent-model in --prices, or
    else in litellm's table. If the price is unknown, a new token costs ten times as much as a
    repeated token.

    Example: foldlog compare tidewatch --config small.toml
    """
    from foldlog._reports.dropped import dropped_document, dropped_in
    from foldlog._reports.figures.prices import Prices
    from foldlog.condensers.models.caches import cache_rule

    table = Prices(prices)
    agent = agent or table.only
    if prices is not None and agent is None:
        raise Refused(
            "--prices has the prices of many models; name the agent's model with --agent-model "
            "MODEL"
        )
    with open_existing(db) as store:
        conversation = resolve(store, conversation)
        version = store.conversation(conversation).version
        price, priced = price_of_agent(agent, table)
        if prices is not None and priced == agent and find_spec("litellm") is None:
            model = None
        else:
            model = named_model(agent)
        counter = counter_beside(model)
        limit = limit_by_log(Views(store).at(conversation, version), model)
        condensers = condensers_of(configs, model, limit)
        replays, asks = replays_of(store, conversation, version, condensers, model, counter)
        with terminal.working("comparing"):
            can_count = agent is None and find_spec("litellm") is not None
            called = model_called(store, conversation) if can_count else None
        about = {
            name: describe_condenser(condenser, model) for name, condenser in condensers.items()
        }
        about["default"]["tokens_max"] = limit or about["default"]["tokens_max"]
        rows = comparison(replays, asks, price, about, cache_rule(agent or ""))
        verdict = verdict_of(rows, price, priced, "" if counter else "≈ ")
        dropped = [*map(dropped_document, dropped_in(store, conversation))]
        task = _task_of(store, conversation, table)
        points: list[CurvePointDocument] = []
        if curve is not None:
            from foldlog._reports.recall_curve import write_plot

            points = curve_of(store, conversation, version, counter)
            write_plot(curve, conversation, points)
    document = ComparisonDocument(
        conversation=conversation,
        version=version,
        counted_as=None if counter is None else counter.tokenizer,
        priced=priced,
        price=(price.of_prompt(0, 0, 1), price.of_prompt(0, 1)),
        curve=tuple(points),
        verdict=tuple(verdict),
        strategies=tuple(rows),
        dropped=tuple(dropped),
        task=task,
    )
    terminal.answer(document, lambda: show_comparison(document, model, counter))
    if curve is not None and not terminal.prints_json():
        show_curve(curve, points)
    if task:
        terminal.note(f"the replays leave out the sub-agents; recorded {task_words(task)}")
    if called is not None:
        terminal.note(
            f"the agent's replies come from {called}; to use the tokenizer and price of this model,"
            f" add --agent-model {shlex.quote(called)}"
        )


def _task_of(store: Store, conversation: str, prices: Prices) -> TaskDocument | UnsetType:
    """Return the figures of a conversation with its sub-agents, if it has any. Counting writes
    figures, and a comparison leaves the store of a single agent as it is.
    """
    from foldlog._reports.figures.of_store import FiguresOfStore

    stored = FiguresOfStore(store, prices=prices)
    if not stored.trees.children(conversation):
        return UNSET
    ((_, figures),) = stored.of([store.conversation(conversation)])
    return stored.tasks([figures]).get(conversation, UNSET)
