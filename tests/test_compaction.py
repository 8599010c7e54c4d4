"""The published figures of compactions: ``python -m benchmarks.compaction``."""

import json

from benchmarks import compaction
from foldlog.condensers import ESTIMATE
from foldlog.replays import replay


def test_page_shows_the_published_figures():
    group = json.loads(compaction.PUBLISHED.read_text(encoding="utf-8"))
    page = compaction.PAGE.read_text(encoding="utf-8")
    assert compaction.in_page(page, group) == page
    assert len(group["histories"]) == 40


def test_copier_summarizes_for_both_prompts():
    events = compaction.generated(0, 110)
    for name, condenser in compaction.condensers().items():
        if "40 events" in name and "digest" not in name:
            figures = compaction.figures(name, [replay(events, condenser, ESTIMATE)])
            assert figures["condensations"] > 1, name
            cached = figures["claude-sonnet-4-5"]["summary_cached"]
            assert (cached > 0) is (", continue" in name)
