"""The example of a projection of one's own counts every model call once."""

import io
import runpy
import sys
from contextlib import redirect_stderr, redirect_stdout
from datetime import datetime, timedelta, timezone
from pathlib import Path
from unittest.mock import patch

import pytest

import foldlog
from foldlog import CondensationAction, Message

EXAMPLE = Path(__file__).parent.parent.parent / "examples/cost_by_day.py"
EAST = timezone(timedelta(hours=2))
LATE = datetime(2026, 3, 2, 1, 30, tzinfo=EAST)
"""A time whose day is an earlier one in UTC."""


def run(url: str, table: Path) -> list[str]:
    """Run the example, and return its lines with single spaces."""
    with (
        patch.object(sys, "argv", [str(EXAMPLE), url, str(table)]),
        redirect_stdout(io.StringIO()) as out,
        redirect_stderr(io.StringIO()) as err,
        pytest.raises(SystemExit) as ended,
    ):
        runpy.run_path(str(EXAMPLE), run_name="__main__")
    assert (ended.value.code, err.getvalue()) == (0, "")
    return [" ".join(line.split()) for line in out.getvalue().splitlines()]


def say(url: str, model: str, times: int) -> None:
    with foldlog.open(url) as histories:
        for _ in range(times):
            meta = {"model": model, "total_tokens": 10, "cost": 0.5}
            histories["c1"].append(
                [
                    Message(source="user", content="hi"),
                    Message(source="agent", content="ho", meta=meta, timestamp=LATE),
                ]
            )


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "postgresql":
        return str(request.getfixturevalue("postgres_url")())
    return f"sqlite:///{tmp_path}/history.db"


def test_each_call_counts_once_over_runs(url: str, tmp_path: Path):
    table = tmp_path / "costs.db"
    say(url, "m1", 3)
    first_day = "2026-03-01 m1 3 calls tokens 30 cost 1.5000"
    assert run(url, table) == [first_day]
    assert run(url, table) == [first_day]
    with foldlog.open(url) as histories:
        metadata = {"model": "m1", "cost": 0.25}
        forget = CondensationAction(
            forgotten_event_ids=[0],
            summary="hi",
            summary_offset=0,
            metadata=metadata,
            timestamp=LATE + timedelta(days=1),
        )
        histories["c1"].append(forget)
    next_day = "2026-03-02 m1 1 calls tokens unknown cost 0.2500"
    assert run(url, table) == [first_day, next_day]


def test_unknown_costs_and_split_replies(tmp_path: Path):
    url = f"sqlite:///{tmp_path}/history.db"
    call = {"prompt_tokens": 8, "completion_tokens": 2}
    metas = [{"model": "m", "usage": call}, {"model": "m", "usage": call, "cost": 0.5}]
    metas += [
        {"model": "m", "usage": {**call, "completion_tokens": n}, "reply": "r"} for n in (1, 7)
    ]
    with foldlog.open(url) as histories:
        histories["c"].append(
            [Message(source="agent", content="hm", meta=meta, timestamp=LATE) for meta in metas]
        )
        histories["c"].append(
            Message(source="agent", content="ho", meta={"model": "m"}, timestamp=LATE)
        )
    assert run(url, tmp_path / "costs.db") == [
        "2026-03-01 m 4 calls tokens 35 (of 3 calls) cost 0.5000 (of 1 calls)"
    ]
