"""The name and the figures of each format's sample: one row of a table, the same before the first use of the
source and after it.

    python -m tests.foldlog.formats.test_figures_of_formats

writes the table again. Look at what changed.
"""

import json
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from foldlog.eventstore.sources.blocks import hash_of
from foldlog.formats import FORMATS as OURS
from foldlog.formats.claude_code.skeleton import ClaudeCodeSkeleton
from tests.figures import FiguresOfStore, Where
from tests.foldlog.imports.imports import imported, open_with_imports
from tests.foldlog.records import CORPUS, GOLDEN

TABLE = GOLDEN / "figures.json"
NOT_BEFORE_USE = frozenset(("events", "kinds", "view_tokens", "condensations", "attributes"))
"""What a source counts in records, or does not know, before its events are made."""


@pytest.mark.parametrize(
    "waits_s", [(5, 20), (59.5, 0.5), (70, 20), (20, 70), (61, 59, 0, 62.5), (100, 3, 40, 99, 101)]
)
def test_longest_wait_is_counted_across_minutes(waits_s):
    skeleton = ClaudeCodeSkeleton()
    at = datetime(2026, 1, 1, 12, tzinfo=UTC)

    def count(role):
        text = json.dumps(
            {
                "type": role,
                "uuid": f"{role} {at}",
                "timestamp": at.isoformat().replace("+00:00", "Z"),
                "message": {"role": role, "content": "kites"},
            }
        ).encode()
        skeleton.add(text, hash_of(text))

    for wait_s in waits_s:
        count("user")
        at += timedelta(seconds=wait_s)
        count("assistant")
    assert skeleton.state.longest_wait_s == max(waits_s)


def row_of(store, conversation):
    """Return the name and the figures of a conversation, without the figures that its import does
    not repeat.
    """
    figures = FiguresOfStore(store)
    only = Where(only=[conversation])
    ((_, summary),) = figures.of([store.conversation(conversation, as_stored=True)])
    stats = figures.totals(only)
    spent = [
        {
            "day": call.day,
            "model": call.model,
            "calls": call.calls,
            "cost": call.cost,
            **dict(sorted(call.usage.items())),
        }
        for call in sorted(summary.calls, key=repr)
    ]
    return {
        "name": conversation,
        "title": summary.overview.title,
        "state": summary.state,
        "first_error": summary.first_error,
        "errors": summary.columns.errors,
        "events": summary.overview.events,
        "kinds": dict(sorted(stats.events.items())),
        "days": sorted(stats.days),
        "first_at": None if summary.first_at is None else summary.first_at.isoformat(),
        "last_at": summary.overview.last_event_at,
        "longest_wait_s": summary.columns.longest_wait_s,
        "tools": {name: [tool.calls, tool.errors] for name, tool in sorted(stats.tools.items())},
        "spent": spent,
        "last_prompt_tokens": summary.columns.last_prompt_tokens,
        "context": list(summary.texts.context),
        "condensations": summary.columns.condensations,
        "view_tokens": summary.overview.tokens,
    }


def rows_of(format):
    """The figures of a format's sample before the first use, and after it."""
    with tempfile.TemporaryDirectory() as folder, open_with_imports() as store:
        path = Path(folder, "sample.jsonl")
        path.write_bytes((CORPUS / f"{format}.jsonl").read_bytes())
        name = imported(store, path, format).conversation
        before = row_of(store, name)
        store.version(name)
        return before, row_of(store, name)


def without(row, names):
    return {name: value for name, value in row.items() if name not in names}


@pytest.mark.parametrize("format", sorted(OURS))
def test_figures_of_a_sample_match_the_table(format):
    before, after = rows_of(format)
    assert after == json.loads(TABLE.read_text("utf-8"))[format]
    assert without(before, NOT_BEFORE_USE) == without(after, NOT_BEFORE_USE)


if __name__ == "__main__":
    table = {format: rows_of(format)[1] for format in sorted(OURS)}
    TABLE.write_text(json.dumps(table, indent=1, ensure_ascii=False) + "\n", "utf-8")
