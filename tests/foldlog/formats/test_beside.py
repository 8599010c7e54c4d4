"""What an object or a folder tells beside the records of a history: the answer, and what calls of
models used.

``tests/golden/beside.jsonl`` has stories. A step has the files that are written, the command that
is run then and, where somebody looks, what is stored: a first look makes the events of an import.

    python -m tests.foldlog.formats.test_beside

writes again what is stored. Look at what changed.
"""

import tempfile
from pathlib import Path

import pytest

import foldlog as package
from tests.figures import FiguresOfStore, Prices, spent_by
from tests.foldlog.records import GOLDEN, read_lines, write_lines
from tests.golden.outputs import run

FILE = GOLDEN / "beside.jsonl"
STORIES = read_lines(FILE)


def take(step, folder):
    """Take a step in a folder, and return it with what is stored now if it has a ``look``."""
    for name, lines in step["files"].items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        write_lines(path, lines)
    run(step["run"], folder, {"FOLDLOG_DB": "foldlog.db"})
    if "look" not in step:
        return step
    with package.open(folder / "foldlog.db") as histories:
        spent = spent_in(histories.store, prices_in(folder))
        looks = {name: look(histories[name], spent[name]) for name in histories}
    return {**step, "look": {**looks, "all": spent["all"]}}


def prices_in(folder):
    path = folder / "prices.json"
    return Prices(path) if path.exists() else Prices()


def spent_in(store, prices):
    """Return what each conversation used: tokens in and out, cost, calls; and for all together the
    sums, and the tokens of caches by day and model.
    """
    for row in list(store.iter_conversations()):
        store.version(row.id)  # which makes its events
    stored = FiguresOfStore(store)
    each = {
        row.id: spent_by(figures.calls, prices)
        for row, figures in stored.of(store.iter_conversations())
    }
    spent = {
        name: [usage.prompt_tokens, usage.completion_tokens, usage.cost, usage.calls]
        for name, usage in each.items()
    }
    stored.refresh()
    calls = [*stored.totals().models.values()]
    spent["all"] = {
        "cost": sum(call.cost or 0 for call in calls),
        "calls": sum(call.calls for call in calls),
        "cached_tokens": [call.cached_tokens for call in calls],
        "days": sorted({call.day for call in calls}),
    }
    return spent


def look(history, spent):
    view = [getattr(event, "content", None) or event.tool for event in history.view()]
    *_, last = history.export()
    return {"spent": spent, "view": view, "last record": last}


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story["name"])
def test_what_is_told_beside_records_is_stored(story, tmp_path):
    assert [take(step, tmp_path) for step in story["steps"]] == story["steps"]


@pytest.fixture
def v1(tmp_path):
    """A conversation whose state has sums beside its events."""
    (story,) = [story for story in STORIES if story["name"].startswith("the state beside")]
    take(story["steps"][0], tmp_path)
    with package.open(tmp_path / "foldlog.db") as histories:
        yield histories["v1"], lambda name: spent_in(histories.store, Prices())[name]


def test_foreign_document_named_usage_is_ignored(v1):
    history, spent_by_name = v1
    odd = [
        7,
        {"reply": [], "at": 5, "cost": "x", "usage": 3, "calls": -2},
        {"use": {}, "cost": -1.0, "model": 8},
    ]
    for document in ("text", odd):
        history.append((), documents={"imported usage": document})
        assert spent_by_name("v1")[:3] == [None, None, None]


def test_fork_counts_what_its_sum_grew(v1):
    history, spent_by_name = v1
    fork = history.fork()
    usage = {"prompt_tokens": 400, "completion_tokens": 50}
    grown = history.document("imported usage")[0] | {"usage": usage, "calls": 5, "cost": 1}
    fork.append((), documents={"imported usage": [grown]})
    assert spent_by_name(fork.id) == [100, 20, 0.25, 2]


if __name__ == "__main__":
    for story in STORIES:
        with tempfile.TemporaryDirectory() as folder:
            story["steps"] = [take(step, Path(folder)) for step in story["steps"]]
    write_lines(FILE, STORIES)
