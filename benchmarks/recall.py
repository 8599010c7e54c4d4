"""``python -m benchmarks.recall``: measure the recall and the tokens of each condenser.

A term is *needed* each time that the agent uses it again. Recall is the share of needed terms that
the prompt shows.

    python -m benchmarks.recall                              # the shipped sample and generated histories
    python -m benchmarks.recall runs/ work.db --of 20        # the 20 longest histories there, and the prompts that their runtimes recorded


docs/internals/COMPACTION.md defines the measure.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

import foldlog
from foldlog._figures.prices import Price
from foldlog.condensers import (
    ESTIMATE,
    Condenser,
    LLMSummarizingCondenser,
    Reply,
    condenser_from_config,
)
from foldlog.eventstore import Action, CondensationAction, Event, Message, Observation
from foldlog.replays import Replay, replay

Config = Mapping[str, Any]
_CLEARED: Config = {"type": "clear_tool_uses", "keep": 5, "exclude_tools": ["recall"]}
CONDENSERS: Mapping[str, Config] = {
    "noop": {"type": "noop"},
    "digest 80": {"type": "digest", "max_size": 80},
    "llm 80, a copier": {"type": "llm", "max_size": 80, "keep_first": 4},
    "amortized 80": {"type": "amortized_forgetting", "max_size": 80},
    "recent 80": {"type": "recent_events", "max_events": 80},
    "observation_masking 40": {"type": "observation_masking", "attention_window": 40},
    "clear_tool_uses 20k": {**_CLEARED, "trigger": 20_000, "clear_at_least": 8_000},
    "clear_tool_uses 20k, digest 80": {
        "type": "pipeline",
        "condensers": [
            {**_CLEARED, "trigger": 20_000, "clear_at_least": 8_000},
            {"type": "digest", "max_size": 80},
        ],
    },
    "digest 40": {"type": "digest", "max_size": 40},
    "llm 40, a copier": {"type": "llm", "max_size": 40, "keep_first": 4},
    "amortized 40": {"type": "amortized_forgetting", "max_size": 40},
    "recent 40": {"type": "recent_events", "max_events": 40},
    "observation_masking 10": {"type": "observation_masking", "attention_window": 10},
    "clear_tool_uses 8k": {**_CLEARED, "trigger": 8_000, "clear_at_least": 3_000},
    "clear_thinking": {"type": "clear_thinking"},
}
RECORDED = "as recorded"
_OTHERS = {name for name in CONDENSERS if not name.startswith(("noop", "digest", "llm"))}
PRICE = Price(1e-6, 0.0, 1e-7)
"""Prices of a new and of a repeated token. Most providers have prices in this proportion."""
SAMPLE = Path(foldlog.__file__).parent / "sample"
GENERATED = 5
LENGTH = 400
EXAMPLES = 5
USES_LEAST = 100
COLUMNS = (
    "condenser",
    "terms",
    "or named",
    "facts",
    "sent",
    "repeated",
    "cost",
)


class Copier:
    """Takes the place of the model that writes summaries: it copies lines from the prompt until its
    reply is full.

    The copied lines are the user's words, then the beginning of each event, the newest event first.
    Each line ends with the id of its event.
    """

    model = "a copier"
    supports_function_calling = supports_response_schema = False
    _EVENT = re.compile(r"<EVENT id=(\d+)>\n(.*?)\n</EVENT>", re.DOTALL)
    _LENGTH, _LINE, _ASKED = 6_000, 160, 600

    def complete(self, messages: Sequence[Mapping[str, Any]], **_: Any) -> Reply:
        material = str(messages[-1]["content"])
        before = (
            material.partition("</PREVIOUS SUMMARY>")[0]
            .partition("<PREVIOUS SUMMARY>")[2]
            .splitlines()
        )
        lines = [line for line in before if line.endswith("]")]
        for event_id, text in self._EVENT.findall(material):
            length = self._ASKED if text.startswith("User:") else self._LINE
            lines.append(f"{' '.join(text.split())[:length]} [{event_id}]")
        numbers, room = set[int](), self._LENGTH
        for number in sorted(
            range(len(lines)), key=lambda number: (not lines[number].startswith("User:"), -number)
        ):
            room -= len(lines[number]) + 1
            numbers |= {number} if room > 0 else set()
        return Reply(
            text="\n".join(line for number, line in enumerate(lines) if number in numbers),
            model=self.model,
        )


def condenser_of(config: Config) -> Condenser | None:
    """Return the condenser of a configuration, or None for the recorded prompts. If an ``llm``
    condenser names no model, a ``Copier`` is its model.
    """
    if config.get("type") == RECORDED:
        return None
    if config.get("type") == "llm" and not {"llm", "llm_config"} & config.keys():
        return LLMSummarizingCondenser(
            Copier(), **{key: value for key, value in config.items() if key != "type"}
        )
    return condenser_from_config(dict(config))


def generated(seed: int, length: int) -> list[Event]:
    """Return a history in which each call names paths from earlier results. Newer paths are named
    more often than older paths.
    """
    at = random.Random(seed)
    events: list[Event] = [
        Message(id=0, source="user", content="Find out why the nightly build is slow.")
    ]
    names: list[str] = []
    while len(events) < length:
        used = (
            [names[-min(len(names), int(1.06 ** at.uniform(0, 90)))] for _ in range(2)]
            if names
            else []
        )
        call_id, next_id = f"c{len(events)}", len(events)
        paths = [
            f"{at.choice(('src', 'lib', 'tests'))}/m{at.randrange(16**6):06x}/part.py"
            for _ in range(4)
        ]
        text = "\n".join(
            f"{path}: {at.randrange(90)} lines\n{'and so on ' * at.randrange(40)}" for path in paths
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


def row(replays: Sequence[Replay]) -> dict[str, Any]:
    """Return the figures of one condenser over all histories."""
    needed = sum(len(replay.needed) for replay in replays)
    missing = [missed for replay in replays for missed in replay.missing]
    sent, repeated = (
        sum(getattr(replay, name) or 0 for replay in replays)
        for name in ("tokens_sent", "tokens_repeated")
    )
    calls = sum(len(replay.turns) for replay in replays)
    return {
        "needed": needed,
        "shown": round(100 * (1 - len(missing) / needed), 2) if needed else None,
        "named": (
            round(100 * (1 - sum(not missed.named for missed in missing) / needed), 2)
            if needed
            else None
        ),
        "facts": sum(replay.facts for replay in replays),
        "facts_shown": round(100 * _part(replays, "facts_in_prompts", "facts"), 2),
        "tokens_sent": sent,
        "tokens_repeated": repeated,
        "cost": round(sum(replay.prompts_cost(PRICE) or 0.0 for replay in replays), 6),
        "calls": calls,
        "condensations_per_100_calls": round(
            100 * sum(len(replay.condensations) for replay in replays) / calls, 1
        ),
        "missing": Counter(missed.term for missed in missing).most_common(EXAMPLES),
    }


def _part(replays: Sequence[Replay], part: str, whole: str) -> float:
    """Return the total of the count ``part`` in all replays, divided by the total of the count
    ``whole``.
    """
    return sum(getattr(replay, part) for replay in replays) / max(
        1, sum(getattr(replay, whole) for replay in replays)
    )


def measured(
    histories_by_name: Mapping[str, Sequence[Event]], condensers: Mapping[str, Config]
) -> dict[str, Any]:
    """Return the number and size of these histories, and the figures of each condenser."""
    rows = {}
    for name, config in condensers.items():
        condenser = condenser_of(config)
        rows[name] = row(
            [replay(events, condenser, ESTIMATE) for events in histories_by_name.values()]
        )
        sys.stderr.write(f"{name}: {rows[name]['shown']} % shown\n")
    needed = max(row["needed"] for row in rows.values())
    return {
        "histories": len(histories_by_name),
        "events": sum(map(len, histories_by_name.values())),
        "uses": needed,
        "rows": rows,
    }


def figures(group: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """Return the cells of a table, with one row for each condenser."""
    rows = group["rows"]
    whole = rows.get("noop", max(rows.values(), key=lambda row: row["cost"]))["cost"] or 1
    return [
        (
            name,
            f"{row['shown']:.1f} %",
            f"{row['named']:.1f} %",
            f"{row['facts_shown']:.1f} %",
            f"{row['tokens_sent'] / 1e6:.2f}M",
            f"{100 * row['tokens_repeated'] / max(1, row['tokens_sent']):.0f} %",
            f"{100 * row['cost'] / whole:.0f} %",
        )
        for name, row in rows.items()
    ]


def title(name: str, group: Mapping[str, Any]) -> str:
    count = group["histories"]
    histories = "1 history" if count == 1 else f"{count} histories"
    return f"{name}: {histories}, {group['events']:,} events, {group['uses']:,} later uses of terms"


def show(name: str, group: Mapping[str, Any]) -> None:
    sys.stdout.write(title(name, group) + "\n")
    shown = Table(box=None, pad_edge=False)
    for column in (*COLUMNS, "missing most often"):
        shown.add_column(
            column, justify="left" if column in (COLUMNS[0], "missing most often") else "right"
        )
    for cells, row in zip(figures(group), group["rows"].values(), strict=True):
        shown.add_row(*cells, ", ".join(term for term, _ in row["missing"][:2]))
    Console(width=150).print(shown)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "sources", nargs="*", help="files and folders to import, or URLs of stores to read"
    )
    parser.add_argument("--of", type=int, default=20, help="how many of the longest histories (20)")
    parser.add_argument(
        "--condenser", action="append", metavar="JSON", help="a configuration; once for each"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures")
    options = parser.parse_args()
    chosen = (
        {config: json.loads(config) for config in options.condenser}
        if options.condenser
        else CONDENSERS
    )
    groups: dict[str, Any] = {}
    if not options.sources:
        own = histories([str(SAMPLE)]) | {
            f"seed {seed}": generated(seed, LENGTH) for seed in range(GENERATED)
        }
        groups["Sample and generated"] = measured(own, chosen)
    if options.sources:
        histories_by_name = histories(options.sources)
        longest = {name: histories_by_name[name] for name in [*histories_by_name][: options.of]}
        groups["Given"] = measured(longest, chosen)
        for runtime, condensed in condensed_by(histories_by_name).items():
            which = {
                RECORDED: {"type": RECORDED},
                **{name: chosen[name] for name in chosen if name not in _OTHERS},
            }
            groups[f"Condensed by {runtime}"] = measured(condensed, which)
    for name, group in groups.items():
        show(name, group)
    if options.json is not None:
        options.json.write_text(json.dumps(groups, indent=1) + "\n")


def condensed_by(
    histories_by_name: Mapping[str, Sequence[Event]],
) -> dict[str, dict[str, Sequence[Event]]]:
    """Return the histories that a runtime condensed and its agent then continued, by the format of
    their records. A history with fewer than ``USES_LEAST`` needed terms is left out, because its
    figures mean little.
    """
    groups: dict[str, dict[str, Sequence[Event]]] = {}
    for name, events in histories_by_name.items():
        first = next(
            (event for event in events if isinstance(event, CondensationAction) and event.origin),
            None,
        )
        if first is None or first.origin is None:
            continue
        recorded = replay(events, None)
        if recorded.acted and len(recorded.needed) >= USES_LEAST:
            groups.setdefault(first.origin.format, {})[name] = events
    return groups


if __name__ == "__main__":
    main()
