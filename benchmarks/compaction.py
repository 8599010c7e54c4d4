"""``python -m benchmarks.compaction FOLDER… --publish``: what compactions cost with each provider's
cache, and what the prompts still show.

The longest histories of the folders are replayed with each condenser. No model is called. A
``Copier`` writes the summaries, so the figures show the cost of a way to ask for a summary, and not
how well a model summarizes. With ``--pieces FOLDER``, a run that was killed goes on where it was,
and processes with ``--only`` share the work.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import foldlog
from benchmarks.pages import with_part
from benchmarks.pieces import Pieces
from foldlog._reports.figures.prices import Price
from foldlog.condensers import (
    ESTIMATE,
    Condenser,
    LLMSummarizingCondenser,
    Reply,
    StructuredSummaryCondenser,
    condenser_from_config,
)
from foldlog.condensers.models.caches import CacheRule, cache_rule
from foldlog.condensers.reply import ToolCall
from foldlog.condensers.strategies.state_fields import FIELDS, REQUIRED, TOOL_NAME
from foldlog.eventstore import Action, Event, Message, Observation
from foldlog.replays import Replay, replay

PROVIDERS: Mapping[str, tuple[CacheRule, Price]] = {
    "claude-sonnet-4-5": (
        cache_rule("claude-sonnet-4-5"),
        Price(3e-6, 15e-6, 0.3e-6, 3.75e-6),
    ),
    "gpt-5.2": (cache_rule("gpt-5.2"), Price(1.75e-6, 14e-6, 0.175e-6)),
    "gemini-2.5-pro": (cache_rule("gemini-2.5-pro"), Price(1.25e-6, 10e-6, 0.125e-6)),
}
SIZE = 40
LIMIT = 16_000
PAGE = Path(__file__).parents[1] / "docs" / "internals" / "COMPACTION.md"
PUBLISHED = PAGE.with_name("compaction.json")
_LINE = 160
"""The characters of an event or message that a line of a summary has."""
_ASKED = 600
"""The same for the words of the user."""
_LENGTH = 6_000
"""The characters of a summary."""
_EVENT = re.compile(r"<EVENT id=(\d+)>\n(.*?)\n</EVENT>", re.DOTALL)


class Copier:
    """Takes the place of the model that writes summaries: it copies lines from the prompt until its
    reply is full.

    The copied lines are the user's words, then the beginning of each event or message, the newest
    first. A line of an event ends with the id of the event.
    """

    model = "a copier"
    supports_function_calling = True
    supports_response_schema = False

    def complete(self, messages: Sequence[Mapping[str, Any]], **options: Any) -> Reply:
        material = str(messages[-1]["content"])
        if "<EVENT id=" in material:
            text = _until_full(_lines_of_events(material))
        else:
            text = _until_full(_lines_of_messages(messages[:-1]))
        fields = dict.fromkeys(FIELDS, "") | dict.fromkeys(REQUIRED, "see the current state")
        structured = json.dumps({**fields, "current_state": text})
        if options.get("tool_choice") == TOOL_NAME:
            call = ToolCall(TOOL_NAME, structured)
            return Reply(text=None, model=self.model, tool_calls=(call,))
        if "one JSON object" in material:
            text = structured
        return Reply(text=text, model=self.model)


def _lines_of_events(material: str) -> list[str]:
    before = material.partition("</PREVIOUS SUMMARY>")[0].partition("<PREVIOUS SUMMARY>")[2]
    lines = [line for line in before.splitlines() if line.endswith("]")]
    for event_id, text in _EVENT.findall(material):
        length = _ASKED if text.startswith("User:") else _LINE
        lines.append(f"{' '.join(text.split())[:length]} [{event_id}]")
    return lines


def _lines_of_messages(messages: Sequence[Mapping[str, Any]]) -> list[str]:
    lines = []
    for message in messages:
        text = " ".join(str(message.get("content") or message.get("tool_calls")).split())
        length = _ASKED if message["role"] == "user" else _LINE
        lines.append(f"{message['role']}: {text[:length]}")
    return lines


def _until_full(lines: Sequence[str]) -> str:
    """Return the lines that have room, in their order: the user's first, then the newest."""
    room = _LENGTH
    numbers = set[int]()
    order = sorted(range(len(lines)), key=lambda n: (lines[n][:5].lower() != "user:", -n))
    for number in order:
        room -= len(lines[number]) + 1
        if room > 0:
            numbers.add(number)
    return "\n".join(line for number, line in enumerate(lines) if number in numbers)


def condensers() -> dict[str, Condenser]:
    """Return the condensers by name. A summarizer appears with both prompts."""
    found: dict[str, Condenser] = {"noop": condenser_from_config({"type": "noop"})}
    sizes = {"max_size": SIZE}
    for name, limits in ((f"{SIZE} events", sizes), (f"{LIMIT:,} tokens", {"max_tokens": LIMIT})):
        for prompt in ("events", "continue"):
            arguments: dict[str, Any] = {**limits, "prompt": prompt}
            found[f"llm, {prompt}, {name}"] = LLMSummarizingCondenser(Copier(), **arguments)
            found[f"structured_summary, {prompt}, {name}"] = StructuredSummaryCondenser(
                Copier(), **arguments
            )
        found[f"digest, {name}"] = condenser_from_config({"type": "digest", **limits})
    for prompt in ("events", "continue"):
        found[f"llm, {prompt}, when_cheaper"] = LLMSummarizingCondenser(
            Copier(), max_tokens=10_000_000, prompt=prompt, when_cheaper=True
        )
    found["digest, when_cheaper"] = condenser_from_config(
        {"type": "digest", "max_tokens": 10_000_000, "when_cheaper": True}
    )
    cleared = {"type": "clear_tool_uses", "keep": 5, "trigger": LIMIT, "clear_at_least": 6_000}
    for config in (
        {"type": "amortized_forgetting", "max_size": SIZE},
        {"type": "recent_events", "max_events": SIZE},
        {"type": "observation_masking", "attention_window": 10},
        cleared,
        {
            "type": "pipeline",
            "condensers": [{"type": "clear_tool_uses", "trigger": 30_000}, {"type": "digest"}],
        },
    ):
        found[str(config["type"])] = condenser_from_config(config)
    return found


def generate_events(seed: int, length: int) -> list[Event]:
    """Return a history in which each call names paths from earlier results. Newer paths are named
    more often than older paths.
    """
    rng = random.Random(seed)
    events: list[Event] = [
        Message(id=0, source="user", content="Find out why the nightly build is slow.")
    ]
    names: list[str] = []
    while len(events) < length:
        used = (
            [names[-min(len(names), int(1.06 ** rng.uniform(0, 90)))] for _ in range(2)]
            if names
            else []
        )
        call_id = f"c{len(events)}"
        next_id = len(events)
        paths = [
            f"{rng.choice(('src', 'lib', 'tests'))}/m{rng.randrange(16**6):06x}/part.py"
            for _ in range(4)
        ]
        text = "\n".join(
            f"{path}: {rng.randrange(90)} lines\n{'and so on ' * rng.randrange(40)}"
            for path in paths
        )
        events.append(
            Action(id=next_id, tool="run", arguments={"command": f"look {used}"}, call_id=call_id)
        )
        events.append(
            Observation(id=next_id + 1, tool="run", call_id=call_id, cause=next_id, content=text)
        )
        names += paths
    return events


def histories(sources: Sequence[str]) -> dict[str, list[Event]]:
    """Return the histories of the sources by name, the longest first. A source is a file or folder
    to import, or the URL of a store.
    """
    histories_by_name: dict[str, list[Event]] = {}
    for source in sources:
        url = source if "://" in source or source.endswith(".db") else "memory:"
        with foldlog.open(url) as stored:
            if url != source:
                stored.import_(source)
            for conversation in stored:
                histories_by_name[f"{source} {conversation}"] = list(stored[conversation].events())
    return {
        name: histories_by_name[name]
        for name in sorted(
            histories_by_name, key=lambda name: len(histories_by_name[name]), reverse=True
        )
    }


def _percent(part: int, whole: int) -> float | None:
    return round(100 * part / whole, 2) if whole else None


def figures(name: str, replays: Sequence[Replay]) -> dict[str, Any]:
    """Return the figures of one condenser over all histories. If no history needs a term or a fact
    again, its percentage is None.
    """
    needed = sum(len(run.needed) for run in replays)
    facts = sum(run.facts for run in replays)
    sent = sum(run.tokens_sent or 0 for run in replays)
    row: dict[str, Any] = {
        "condensations": sum(len(run.condensations) for run in replays),
        "tokens_sent": sent,
        "terms": _percent(needed - sum(len(run.missing) for run in replays), needed),
        "facts": _percent(sum(run.facts_in_prompts for run in replays), facts),
    }
    summaries = [prompts for run in replays for prompts in run.summaries]
    continues = ", continue" in name
    row["summary_tokens"] = sum(prompts.next if continues else prompts.own for prompts in summaries)
    for model, (rule, price) in PROVIDERS.items():
        cached = sum(run.tokens_cached(rule) or 0 for run in replays)
        prompts_cost = sum(run.prompts_cost(price, rule) or 0.0 for run in replays)
        if continues:
            summaries_cost = sum(prompts.cost_next(price, rule) for prompts in summaries)
            summary_cached = sum(rule.cached(prompts.repeated) for prompts in summaries)
        else:
            summaries_cost = sum(prompts.cost_own(price) for prompts in summaries)
            summary_cached = 0
        row[model] = {
            "cached": cached,
            "prompts": round(prompts_cost, 4),
            "summaries": round(summaries_cost, 4),
            "summary_cached": summary_cached,
            "cost": round(prompts_cost + summaries_cost, 4),
        }
    return row


def measure_condensers(
    chosen: Mapping[str, Sequence[Event]], names: Sequence[str], folder: Path | None = None
) -> dict[str, Any]:
    """Return the figures of the condensers with these names. ``folder`` keeps the row of each."""
    listed = [{"format": _format(events), "events": len(events)} for events in chosen.values()]
    pieces = Pieces(folder, listed)
    by_name = condensers()
    rows = {}
    for name in names:
        rows[name] = pieces.figures(name, partial(_row, name, by_name[name], chosen))
        sys.stderr.write(f"{name}: {rows[name]}\n")
    return {"histories": listed, "rows": rows}


def _row(name: str, condenser: Condenser, chosen: Mapping[str, Sequence[Event]]) -> dict[str, Any]:
    return figures(name, [replay(events, condenser, ESTIMATE) for events in chosen.values()])


def _format(events: Sequence[Event]) -> str:
    return next((event.origin.format for event in events if event.origin), "own")


def _percent_cell(percent: float | None) -> str:
    return "–" if percent is None else f"{percent:.1f} %"


def tables(group: Mapping[str, Any]) -> str:
    formats = Counter(history["format"] for history in group["histories"])
    events = sum(history["events"] for history in group["histories"])
    listed = ", ".join(f"{number} of {name}" for name, number in formats.most_common())
    lengths = sorted(history["events"] for history in group["histories"])
    text = (
        f"**{len(group['histories'])} histories** ({listed}) with {events:,} events, from"
        f" {lengths[0]:,} to {lengths[-1]:,} each.\n\n"
    )
    heads = ("condenser", "condensations", "sent", "terms", "facts")
    model, *others = PROVIDERS
    heads += ("cached", "summaries", "of them cached", "cost of summaries", "cost in all")
    heads += tuple(f"in all, {other}" for other in others)
    text += f"| {' | '.join(heads)} |\n|---|{'---:|' * (len(heads) - 1)}\n"
    for name, row in group["rows"].items():
        costs = row[model]
        cells = (
            name,
            f"{row['condensations']:,}",
            f"{row['tokens_sent'] / 1e6:.2f}M",
            _percent_cell(row["terms"]),
            _percent_cell(row["facts"]),
            f"{100 * costs['cached'] / row['tokens_sent']:.0f} %",
            f"{row['summary_tokens'] / 1e3:,.0f}k",
            f"{100 * costs['summary_cached'] / max(1, row['summary_tokens']):.0f} %",
            f"${costs['summaries']:.2f}",
            f"${costs['cost']:.2f}",
            *(f"${row[other]['cost']:.2f}" for other in others),
        )
        text += f"| {' | '.join(cells)} |\n"
    return text + "\n"


def in_page(text: str, group: Mapping[str, Any]) -> str:
    """Put the table of docs/internals/compaction.json into the page."""
    return with_part(text, "python -m benchmarks.compaction FOLDER --publish", tables(group))


def publish(group: Mapping[str, Any]) -> None:
    PUBLISHED.write_text(json.dumps(group, indent=1) + "\n", encoding="utf-8")
    PAGE.write_text(in_page(PAGE.read_text(encoding="utf-8"), group), encoding="utf-8")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("sources", nargs="+", help="files and folders to import")
    parser.add_argument("--of", type=int, default=40, help="how many of the longest histories (40)")
    parser.add_argument(
        "--only", action="append", choices=[*condensers()], help="measure only these condensers"
    )
    parser.add_argument("--pieces", type=Path, help="a folder that keeps the row of each condenser")
    parser.add_argument("--publish", action="store_true", help="write the page")
    options = parser.parse_args(arguments)
    if options.publish and options.only:
        parser.error("--publish writes all rows, and --only leaves some out")
    found = histories(options.sources)
    chosen = {name: found[name] for name in [*found][: options.of]}
    group = measure_condensers(chosen, options.only or [*condensers()], options.pieces)
    sys.stdout.write(tables(group))
    if options.publish:
        publish(group)


if __name__ == "__main__":
    main()
