"""``python -m benchmarks.recall``: what each condenser shows of what the agent needs again, and what it sends.

    python -m benchmarks.recall                                    # the shipped sample and generated histories
    python -m benchmarks.recall runs/ sqlite:///work.db --of 20    # the longest histories there

docs/RECALL.md defines the measure.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

import foldlog
from foldlog.condensers import ESTIMATE, condenser_from_config
from foldlog.eventstore import Action, Event, Message, Observation
from foldlog.replays import Replay, replay

CONDENSERS: Mapping[str, Mapping[str, Any]] = {
    "noop": {"type": "noop"},
    "digest 80": {"type": "digest", "max_size": 80},
    "amortized 80": {"type": "amortized", "max_size": 80},
    "observation_masking 40": {"type": "observation_masking", "attention_window": 40},
    "recent 80": {"type": "recent", "max_events": 80},
    "digest 40": {"type": "digest", "max_size": 40},
    "amortized 40": {"type": "amortized", "max_size": 40},
    "observation_masking 10": {"type": "observation_masking", "attention_window": 10},
    "recent 40": {"type": "recent", "max_events": 40},
}
SAMPLE = Path(foldlog.__file__).parent / "sample"
GENERATED = 5
LENGTH = 400
EXAMPLES = 5


def generated(seed: int, length: int) -> list[Event]:
    """Return a history in which each call names things from earlier results, of any age, the newer the more often."""
    at = random.Random(seed)
    events: list[Event] = [Message(id=0, source="user", content="Find out why the nightly build is slow.")]
    names: list[str] = []
    while len(events) < length:
        used = [names[-min(len(names), int(1.06 ** at.uniform(0, 90)))] for _ in range(2)] if names else []
        call_id, place = f"c{len(events)}", len(events)
        found = [f"{at.choice(('src', 'lib', 'tests'))}/m{at.randrange(16**6):06x}/part.py" for _ in range(4)]
        text = "\n".join(f"{path}: {at.randrange(90)} lines\n{'and so on ' * at.randrange(40)}" for path in found)
        events.append(Action(id=place, tool="run", arguments={"command": f"look {used}"}, call_id=call_id))
        events.append(Observation(id=place + 1, tool="run", call_id=call_id, cause=place, content=text))
        names += found
    return events


def spread(replays: Sequence[Replay], seeds: int) -> tuple[float, float]:
    """Return the least and the largest share that was shown, of a random half of all terms for each seed."""
    shares = []
    for seed in range(seeds):

        def drawn(history: int, term: str, seed: int = seed) -> bool:
            return sha256(f"{seed} {history} {term}".encode()).digest()[0] < 128

        needed = sum(drawn(place, term) for place, done in enumerate(replays) for term in done.needed)
        missing = sum(drawn(place, each.term) for place, done in enumerate(replays) for each in done.missing)
        shares.append(100 * (1 - missing / needed) if needed else 100.0)
    return min(shares), max(shares)


def histories(sources: Sequence[str], of: int) -> dict[str, list[Event]]:
    """Return the longest histories of the sources, files and folders to import or URLs of stores, by their names."""
    found: dict[str, list[Event]] = {}
    for source in sources:
        url = source if "://" in source or source.endswith(".db") else "memory:"
        with foldlog.open(url) as stored:
            if url != source:
                stored.import_(source)
            for conversation in stored:
                found[f"{source} {conversation}"] = list(stored[conversation].events())
    names = sorted(found, key=lambda name: len(found[name]), reverse=True)[:of]
    return {name: found[name] for name in names}


def row(replays: Sequence[Replay], seeds: int) -> dict[str, Any]:
    """Return the figures of one condenser over all histories."""
    needed = sum(len(done.needed) for done in replays)
    missing = [each for done in replays for each in done.missing]
    sent, repeated = (sum(getattr(done, name) or 0 for done in replays) for name in ("tokens_sent", "tokens_repeated"))
    calls = sum(len(done.turns) for done in replays)
    low, high = spread(replays, seeds)
    return {
        "needed": needed,
        "shown": round(100 * (1 - len(missing) / needed), 2) if needed else None,
        "named": round(100 * (1 - sum(not each.named for each in missing) / needed), 2) if needed else None,
        "shown_least": round(low, 2),
        "shown_most": round(high, 2),
        "tokens_sent": sent,
        "tokens_new": sent - repeated,
        "calls": calls,
        "condensations_per_100_calls": round(100 * sum(len(done.condensations) for done in replays) / calls, 1),
        "missing": Counter(each.term for each in missing).most_common(EXAMPLES),
    }


def measured(
    found: Mapping[str, Iterable[Event]], condensers: Mapping[str, Mapping[str, Any]], seeds: int
) -> dict[str, Any]:
    """Return the row of each condenser over these histories."""
    rows = {}
    for name, config in condensers.items():
        replays = [replay(events, condenser_from_config(dict(config)), ESTIMATE) for events in found.values()]
        rows[name] = row(replays, seeds)
        sys.stderr.write(f"{name}: {rows[name]['shown']} % shown\n")
    return rows


def table(rows: Mapping[str, Mapping[str, Any]]) -> Table:
    shown = Table(box=None, pad_edge=False)
    headings = ("condenser", "shown", "halves", "or named", "sent", "new", "condensations/100", "missing most often")
    for heading in headings:
        shown.add_column(heading, justify="left" if heading in (headings[0], headings[-1]) else "right")
    for name, each in rows.items():
        shown.add_row(
            name,
            f"{each['shown']:.1f} %",
            f"{each['shown_least']:.1f} to {each['shown_most']:.1f}",
            f"{each['named']:.1f} %",
            f"{each['tokens_sent'] / 1e6:.2f}M",
            f"{each['tokens_new'] / 1e6:.2f}M",
            str(each["condensations_per_100_calls"]),
            ", ".join(term for term, _ in each["missing"][:2]),
        )
    return shown


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("sources", nargs="*", help="files and folders to import, or URLs of stores")
    parser.add_argument("--of", type=int, default=20, help="how many of the longest histories (20)")
    parser.add_argument("--seeds", type=int, default=10, help="how many random halves of the uses (10)")
    parser.add_argument("--condenser", action="append", metavar="JSON", help="a configuration; once for each")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures")
    given = parser.parse_args()
    chosen = {each: json.loads(each) for each in given.condenser} if given.condenser else CONDENSERS
    found: dict[str, list[Event]] = histories(given.sources or [str(SAMPLE)], given.of)
    if not given.sources:
        found |= {f"generated {seed}": generated(seed, LENGTH) for seed in range(GENERATED)}
    rows = measured(found, chosen, given.seeds)
    needed = max(each["needed"] for each in rows.values())
    sys.stdout.write(f"{len(found)} histories, {sum(map(len, found.values())):,} events, {needed:,} uses\n")
    Console(width=150).print(table(rows))
    if given.json is not None:
        given.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
