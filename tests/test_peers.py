"""``python -m benchmarks.peers``: the peers that need no environment, reports of failures, published
figures.
"""

import json
import re
import sqlite3
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.peers import plot, report, syncs
from benchmarks.peers.environments import HERE, PEERS, Sayer
from benchmarks.peers.measuring import measure, prepare, summed_up, together

ROOT = Path(__file__).parents[1]
EVENTS = 300


class Quiet(Sayer):
    def __call__(self, text): ...


@pytest.mark.long
def test_the_quick_run_measures_both_sides_and_prints_a_table_of_100_columns(tmp_path):
    ran = subprocess.run(
        [
            sys.executable,
            "-m",
            "benchmarks.peers",
            "--quick",
            f"--events={EVENTS}",
            "--rounds=1",
            f"--cache={tmp_path}",
        ],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    run = json.loads((tmp_path / "results" / f"{EVENTS}.json").read_text())
    assert list(run["peers"]) == ["foldlog", "sqlite3 by hand"]
    for figures in run["peers"].values():
        assert figures["shows"] == "view"
        names = ("open_ms", "append_ms", "turn_ms", "bytes_an_event")
        assert min(figures[name] for name in names) > 0
        assert re.fullmatch(r"1 fdatasync|not counted: .*", figures["syncs"])
    before_notes, first_note, _ = ran.stdout.partition(report.notes({str(EVENTS): run})[0])
    assert first_note, ran.stdout
    assert max(map(len, before_notes.splitlines())) <= 100
    first = [line.split()[0] for line in before_notes.splitlines() if line.strip()]
    assert first[-3:] == ["store", "foldlog", "sqlite3"]
    assert not (tmp_path / "stores" / str(EVENTS)).exists()


def test_a_side_that_gives_back_other_items_has_failed(tmp_path):
    prepare(HERE, EVENTS, Quiet(), tmp_path)
    with sqlite3.connect(tmp_path / "stores" / str(EVENTS) / "raw_sqlite" / "history.db") as db:
        db.execute("DELETE FROM events WHERE id = 2")
    db.close()
    figures = measure(HERE, EVENTS, 1, Quiet(), tmp_path)
    assert "that differ from the" in figures["sqlite3 by hand"]["failed"]
    assert figures["foldlog"]["open_ms"] > 0
    runs = {str(EVENTS): {"peers": figures}}
    assert [(peer, length) for peer, length, _ in report.failures(runs)] == [
        ("sqlite3 by hand", EVENTS)
    ]
    assert report.rows(runs)[1] == ["sqlite3 by hand", *["failed"] * 6]


def test_a_peer_without_its_python_says_so_in_its_row(tmp_path):
    peer = replace(PEERS[-1], python=(3, 99))
    figures = measure([peer], EVENTS, 1, Quiet(), tmp_path)
    assert figures == {
        "OpenHands": {"failed": "needs Python 3.99 or later, which is not on this machine"}
    }


def test_calls_are_counted_between_the_marks():
    trace = """1 fdatasync(4) = 0
1 fsync(1000000) = -1 EBADF (Bad file descriptor)
1 fdatasync(4 <unfinished ...>
2 fsync(9) = 0
1 <... fdatasync resumed>) = 0
1 fdatasync(4) = 0
1 fsync(1000000) = -1 EBADF (Bad file descriptor)
1 fsync(4) = 0
"""
    assert syncs.told(trace, 2) == "1 fdatasync + 0.5 fsync"
    with pytest.raises(AssertionError, match="1 marks"):
        syncs.told("1 fsync(1000000) = -1 EBADF", 2)


def test_the_page_the_readme_and_the_picture_show_the_published_figures():
    runs = report.published()
    for path, with_figures in ((report.PAGE, report.in_page), (report.README, report.in_readme)):
        text = path.read_text(encoding="utf-8")
        assert with_figures(text, runs) == text, (
            f"{path.name} is not what python -m benchmarks.peers --publish writes"
        )
    assert plot.PICTURE.read_text(encoding="utf-8") == plot.svg(runs)


def test_rounds_of_two_runs_are_put_together():
    def figures(*opened):
        rounds = {
            "open_ms": list(opened),
            "append_ms": [1.0],
            "turn_ms": [1.0],
            "memory_bytes": [1],
        }
        return summed_up({"versions": {"p": "1"}, "rounds": rounds})

    merged = together(
        {"a": figures(9, 1), "b": {"failed": "raised"}, "c": figures(1)},
        {"a": figures(5), "b": figures(1)},
    )
    assert merged["a"]["open_ms"] == 5
    assert merged["a"]["rounds"]["open_ms"] == [9, 1, 5]
    assert merged["b"] == {"failed": "raised"}
    assert merged["c"] == figures(1)
