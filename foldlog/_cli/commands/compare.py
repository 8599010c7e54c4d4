"""``foldlog compare``: replay a history with other condensers."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from foldlog._cli import terminal
from foldlog._cli.agent_model import AgentModelName, counted_words, counter_beside, load_condenser_for, named_model
from foldlog._cli.options import DEFAULT_DB, AsJson, ConversationId, Db, Force, PricesFile, output_option
from foldlog._cli.outcome import Refused
from foldlog._cli.stores import open_existing, resolved
from foldlog._cli.tables import Column, print_rows
from foldlog._copies import noted
from foldlog._documents import ComparisonDocument, CurvePointDocument, StrategyFiguresDocument
from foldlog._reports.comparison import comparison, described, verdict_of
from foldlog._reports.comparison_page import write_page
from foldlog._words.dropped import dropped_words
from foldlog._words.gist import cost_words, count
from foldlog.eventstore import CondensationAction, Store
from foldlog.eventstore.inside import install_command
from foldlog.projections import View, Views, contains, intervals_kept

if TYPE_CHECKING:
    from foldlog._reports.prices import Price, Prices
    from foldlog._reports.replays import Replay
    from foldlog.condensers import LLM, AgentModel, Condenser

_PAGE = 500
"""Events between two updates of the progress bar."""


def run(
    conversation: ConversationId,
    configs: Annotated[
        list[Path] | None,
        typer.Option(
            "--config",
            metavar="FILE",
            help="A TOML file with [condenser]; once for each. The default condenser and noop, which forgets nothing, "
            "are always there.",
            show_default="with a model whose limit is known, the default one with fewer tokens",
        ),
    ] = None,
    html: Annotated[
        Path | None, output_option("--html", help="Write a page with the verdict, figures and plots.")
    ] = None,
    curve: Annotated[
        Path | None,
        output_option(
            "--curve",
            help="Write a plot of recall at retained tokens: what several strategies, each of several sizes, and the "
            "recorded condensations show of what was needed again.",
        ),
    ] = None,
    force: Force = False,
    agent: AgentModelName = None,
    prices: PricesFile = None,
    db: Db = DEFAULT_DB,
    as_json: AsJson = False,
) -> None:
    """Replay a conversation under several condensers. Say which costs least, and what each loses for it.

    Its own condensations are left out, but for the column "as recorded", and a condenser that uses a model asks it. It
    changes no history. The cost is that of all prompts to the agent's model, and of the condenser's own. Tokens with
    which the prompt before began as well are repeated, and cost what the provider asks for tokens from its cache. The
    price is that of --agent-model, by --prices or litellm's table. Without it a new token costs ten times as much as a
    repeated one.

    Example: foldlog compare tidewatch --config small.toml --html compared.html
    """
    from foldlog._reports.dropped import dropped_document, dropped_in
    from foldlog._reports.prices import Prices

    table = Prices(prices)
    agent = agent or table.only
    if prices is not None and agent is None:
        raise Refused("--prices has the prices of many models; name that of the agent with --agent-model MODEL")
    with open_existing(db) as store:
        conversation = resolved(store, conversation)
        version = store.conversation(conversation).version
        price, priced = _price(agent, table)
        model = None if prices is not None and priced == agent and find_spec("litellm") is None else named_model(agent)
        counter = counter_beside(model)
        limit = _limit_by_log(Views(store).at(conversation, version), model)
        condensers = _condensers(configs or [], model, limit)
        replays, asks = _replays(store, conversation, version, condensers, model, counter)
        with terminal.working("comparing"):
            can_count = agent is None and find_spec("litellm") is not None
            called = _model_called(store, conversation) if can_count else None
        about = {name: described(each, model) for name, each in condensers.items()}
        about["default"]["tokens_max"] = limit or about["default"]["tokens_max"]
        rows = comparison(replays, asks, price, about)
        verdict = verdict_of(rows, price, priced, "" if counter else "≈ ")
        dropped = [*map(dropped_document, dropped_in(store, Views(store), conversation, 0, version))]
        found = [] if curve is None else _curve(store, conversation, version, counter)
        if curve is not None:
            from foldlog._reports.recall_curve import write_plot

            write_plot(curve, conversation, found)
        if html is not None:
            with noted(store, "comparison", html, conversation):
                write_page(
                    html, title=conversation, verdict=verdict, figures=figure_rows(rows, counter), replays=replays
                )
    document = ComparisonDocument(
        conversation=conversation,
        version=version,
        counted_as=None if counter is None else counter.tokenizer,
        priced=priced,
        price=(price.of_prompt(0, 0, 1), price.of_prompt(0, 1)),
        html=None if html is None else str(html),
        curve=tuple(found),
        verdict=tuple(verdict),
        strategies=tuple(rows),
        dropped=tuple(dropped),
    )
    terminal.answer(document, lambda: _show(document, model, counter))
    if html is not None and not as_json:
        terminal.say(f"The Views over time: {html}")
    if curve is not None and not as_json:
        _show_curve(curve, found)
    if called is not None:
        terminal.note(
            f"its replies are of {called}; to count and price as that one: --agent-model {shlex.quote(called)}"
        )


def _model_called(store: Store, conversation: str) -> str | None:
    """Return the model that the agent called most, if its replies tell. Cost: the events."""
    from foldlog._formats.usage import UNNAMED
    from foldlog._reports.figures import figures_of

    calls = Counter[str]()
    figures = figures_of(store, Views(store), store.conversation(conversation))
    for one in figures.calls:
        calls[one.model] += 0 if one.by_condenser else one.calls
    del calls[UNNAMED]
    return next((model for model, number in calls.most_common(1) if number), None)


def _limit_by_log(view: View, model: AgentModel | None) -> int | None:
    """Return the limit of the default condenser if the log names the agent's model, and no option does."""
    from foldlog.condensers.models.limits import window_in
    from foldlog.condensers.strategies.summarizing import limit_of

    return limit_of(window_in(view)) if model is None else None


def _price(agent: str | None, table: Prices) -> tuple[Price, str]:
    """Return the price of the agent's model, and its name; where that is not known, the price of a model that has the
    proportions of most.
    """
    from foldlog._reports.prices import Price

    known = None if agent is None else table.of(agent)
    if known is not None and agent is not None:
        return known, agent
    unknown = "" if agent is None else f", since that of {agent} is not known"
    return Price(1e-6, 0.0, 1e-7), f"a model{unknown}"


def _condensers(configs: list[Path], model: AgentModel | None, limit: int | None) -> dict[str, Condenser]:
    """Return the condensers by the name that is shown: the name of the file, or its path if several files have it.
    ``limit`` is that of the model which the log names.
    """
    from foldlog.condensers import NoOpCondenser, default_condenser

    default = default_condenser()
    named: dict[str, Condenser] = {"default": default}
    _, tokens = default.limits(None)
    if not configs and (limit or default.limits(model)[1]) != tokens:
        named[f"max_tokens = {tokens}"] = default_condenser(max_tokens=tokens)
    paths = list(dict.fromkeys(configs))
    stems = ["default", *(path.stem for path in paths)]
    named |= {
        path.stem if stems.count(path.stem) == 1 else str(path): load_condenser_for(path, model) for path in paths
    }
    return (
        named if any(isinstance(each, NoOpCondenser) for each in named.values()) else named | {"noop": NoOpCondenser()}
    )


def _replays(
    store: Store,
    conversation: str,
    version: int,
    condensers: Mapping[str, Condenser],
    model: AgentModel | None,
    counter: AgentModel | None,
) -> tuple[dict[str, Replay], list[int]]:
    """Replay the history under all condensers, in one pass. Return the replays, and the ids of the user's messages."""
    from foldlog._reports.overview import counted_in, is_request
    from foldlog._reports.replays import Replaying
    from foldlog.condensers import ESTIMATE

    replaying = {name: Replaying(condenser, model, counter or ESTIMATE) for name, condenser in condensers.items()}
    structural = store.query(conversation, lambda reading: [*reading.structural_events(0, version)])
    kept, counts_event = intervals_kept(structural, version), counted_in(structural, version)
    if any(isinstance(event, CondensationAction) and contains(kept, event.id) for event in structural):
        replaying[_RECORDED] = Replaying(None, model, counter or ESTIMATE)
    asks: list[int] = []
    with terminal.working("replaying", "events", version) as update:
        for event in store.events(conversation, 0, version):
            if not contains(kept, event.id):
                continue  # a retraction took it back
            if is_request(event) and counts_event(event):
                asks.append(event.id)
            for name, one in replaying.items():
                with _named(name):
                    one.take(event)
            if event.id % _PAGE == 0:
                update(completed=event.id)
        update(completed=version, description="counting")
        replays: dict[str, Replay] = {}
        for name, one in replaying.items():
            with _named(name):
                replays[name] = one.result()
    recorded = replays.get(_RECORDED)
    if recorded is not None and not recorded.acted:
        del replays[_RECORDED]
    return replays, asks


def _curve(store: Store, conversation: str, version: int, counter: AgentModel | None) -> list[CurvePointDocument]:
    """Replay the history under all strategies and sizes of the plot, in one pass."""
    from foldlog._reports.recall_curve import RECORDED, points, strategies
    from foldlog._reports.replays import Replaying
    from foldlog.condensers import ESTIMATE

    replaying = {key: Replaying(condenser, None, counter or ESTIMATE) for key, condenser in strategies().items()}
    structural = store.query(conversation, lambda reading: [*reading.structural_events(0, version)])
    kept = intervals_kept(structural, version)
    if not any(isinstance(event, CondensationAction) and contains(kept, event.id) for event in structural):
        del replaying[RECORDED, None]
    with terminal.working("drawing", "events", version) as update:
        for event in store.events(conversation, 0, version):
            if contains(kept, event.id):
                for one in replaying.values():
                    one.take(event)
            if event.id % _PAGE == 0:
                update(completed=event.id)
        return points({key: one.result() for key, one in replaying.items()})


def _show_curve(path: Path, found: list[CurvePointDocument]) -> None:
    heads = ("size", "tokens a prompt", "terms", "facts")
    rows = [
        [
            point.strategy,
            str(point.size or ""),
            f"{point.tokens:,}",
            f"{point.terms:.1f} %",
            "–" if point.facts is None else f"{point.facts:.1f} %",
        ]
        for point in found
    ]
    terminal.say()
    print_rows((Column("strategy"), *(Column(head, "right") for head in heads)), rows)
    terminal.say(f"Recall at retained tokens: {path}")


@contextmanager
def _named(name: str) -> Iterator[None]:
    """Add the name of the condenser to an error of its model, which stops the comparison."""
    from foldlog.condensers import ModelCallFailed

    try:
        yield
    except ModelCallFailed as error:
        raise Refused(f"{name} cannot be compared: {error}") from error


_RECORDED = "as recorded"
_MISSING_SHOWN = 3
_COSTS = {"cost", "condenser_cost"}
_FIGURES = (
    ("condenser", "condenser", "{}"),
    ("  condenses above, events", "events_max", "{:,}"),
    ("  condenses above, tokens", "tokens_max", "{:,}"),
    ("needed again and shown", "needed_shown", "{:.1f} %"),
    ("  shown, or its event's id is", "needed_named", "{:.1f} %"),
    ("  shown beside a word of its line", "facts_shown", "{:.1f} %"),
    ("condensations", "condensations", "{:,}"),
    ("  for 100 calls", "condensations_per_100_calls", "{:.1f}"),
    ("of them asked for and impossible", "declined", "{:,}"),
    ("largest View, events", "view_events_peak", "{:,}"),
    ("last View, events", "view_events_last", "{:,}"),
    ("  hidden by a mask in that one", "events_hidden_last", "{:,}"),
    ("largest prompt, tokens", "tokens_peak", "{:,}"),
    ("cost of these prompts and of its model", "cost", cost_words),
    ("sent in total, tokens", "tokens_sent", "{:,}"),
    ("  repeated from the prompt before", "tokens_repeated", "{:,}"),
    ("  new", "tokens_new", "{:,}"),
    ("for the condenser's own model, tokens", "condenser_tokens", "{:,}"),
    ("what that cost", "condenser_cost", cost_words),
    ("unusable replies", "condenser_failures", "{:,}"),
    ("events in a summary", "events_summarized", "{:,}"),
    ("events masked at a call", "events_masked", "{:,}"),
    ("events lost", "events_lost", "{:,}"),
    ("  of them said by the user", "user_messages_lost", "{:,}"),
)
"""Rows of the table: heading, key of ``comparison``, form. Of ids their number is shown."""

_ALWAYS = {
    "cost",
    "condensations",
    "view_events_peak",
    "view_events_last",
    "tokens_sent",
    "events_summarized",
    "events_lost",
}
"""Rows that are shown even if no strategy has a value."""


def _show(document: ComparisonDocument, model: LLM | None, counter: LLM | None) -> None:
    name, rows = terminal.typed_id(document.conversation), document.strategies
    calls = count(rows[0].turns, "call")
    terminal.say((f"{name}: {count(document.version, 'event')}, {calls} of the agent's model", "bold"), wraps=True)
    for line in document.verdict:
        terminal.say(line, wraps=True)
    terminal.say()
    names = (row.strategy for row in rows)
    columns = (Column(name, "right", least=12, may_go=place > 0) for place, name in enumerate(names))
    print_rows((Column(""), *columns), figure_rows(rows, counter)[1:])
    for row in rows:
        if row.missing:
            terminal.say(f"{row.strategy} did not show {_missing(row)}", wraps=True)
    for found in document.dropped:
        terminal.say(f"{_RECORDED}, {dropped_words(found)}", wraps=True)
    if counter is None:
        terminal.say(f"Tokens are estimated: ≈. To count them: {install_command('llm')}", wraps=True)
        return
    terminal.say(f"Tokens {counted_words(counter)}. No history was changed.", wraps=True)
    if model is None:
        terminal.say("Limits of condensers are estimated, as for an agent without agent_llm.", wraps=True)
    else:
        counted_so = f"agent_llm=LLM(LLMConfig(model={model.model!r}))"
        terminal.say(f"An agent counts its limits so only with {counted_so}.", wraps=True)


def figure_rows(rows: Sequence[StrategyFiguresDocument], counter: LLM | None) -> list[list[str]]:
    """Return the figures as a table of texts: first the headings, one column for each strategy. Without a ``counter``
    tokens are estimated.
    """
    table = [["", *(row.strategy for row in rows)]]
    for heading, key, form in _FIGURES:
        missing, values = "unknown" if key in _COSTS else "–", [getattr(row, key) for row in rows]
        values = [len(value) if isinstance(value, tuple) else value for value in values]
        words = form if callable(form) else form.format
        about = "≈ " if counter is None and (key.startswith("tokens_") or key == "cost") else ""
        if key in _ALWAYS or any(values) or (key in _COSTS and None in values):
            table.append([heading, *(missing if value is None else about + words(value) for value in values)])
    return table


def _missing(row: StrategyFiguresDocument) -> str:
    """Return the terms that were missing most often, each with the last event that used it and the one that had it."""
    often = Counter(each.term for each in row.missing).most_common(_MISSING_SHOWN)
    last = {each.term: each for each in row.missing}
    return "; ".join(
        f"{term} ({count(times, 'time')}; event {last[term].used} used it, {last[term].occurred[0]} has it)"
        for term, times in often
    )
