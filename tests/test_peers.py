"""``python -m benchmarks.peers``: the peers that need no environment, reports of failures, published
figures.
"""

import re
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.peers import plot, report
from benchmarks.peers.environments import HERE
from benchmarks.peers.measuring import measure

ROOT = Path(__file__).parents[1]
EVENTS = 300


@pytest.mark.long
def test_quick_run_prints_both_sides(tmp_path):
    options = ["--quick", f"--events={EVENTS}", "--rounds=1", f"--folder={tmp_path}"]
    ran = subprocess.run(
        [sys.executable, "-m", "benchmarks.peers", *options],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    head, _, *rows = (
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in ran.stdout.partition("\n\n")[0].splitlines()
    )
    assert head == ["store", "open 300", "turn", "append", "syncs", "bytes", "memory"]
    assert [row[0] for row in rows] == ["foldlog", "sqlite3 by hand"]
    for _, opened, turn, append, syncs_of_append, size, _ in rows:
        assert min(float(figure.replace(",", "")) for figure in (opened, turn, append, size)) > 0
        assert re.fullmatch(r"1 fdatasync|\?", syncs_of_append)
    assert list(tmp_path.iterdir()) == [], "the stores are removed"


def test_side_with_other_items_has_failed(tmp_path):
    def lose_an_item(message):
        if "open, round" in message:
            with sqlite3.connect(tmp_path / "raw_sqlite" / "history.db") as db:
                db.execute("DELETE FROM events WHERE id = 2")
            db.close()

    figures = measure(HERE, EVENTS, 1, lose_an_item, tmp_path)
    assert "that differ from the" in figures["sqlite3 by hand"]["failed"]
    assert figures["foldlog"]["open_ms"] > 0
    runs = {str(EVENTS): {"peers": figures}}
    assert [(peer, length) for peer, length, _ in report.failures(runs)] == [
        ("sqlite3 by hand", EVENTS)
    ]
    assert report.rows(runs)[1] == ["sqlite3 by hand", *["failed"] * 6]


def test_pages_and_picture_show_published_figures():
    runs = report.read_published()
    for path, with_figures in ((report.PAGE, report.in_page), (report.README, report.in_readme)):
        text = path.read_text(encoding="utf-8")
        assert with_figures(text, runs) == text, (
            f"{path.name} is not what python -m benchmarks --pages writes"
        )
    assert plot.PICTURE.read_text(encoding="utf-8") == plot.svg(runs)
