"""Recorded runs as tests. pytest loads this plugin by itself; it imports the rest at the first use.

    def test_refund(replay):
        recorded = replay("tests/runs/refund.jsonl")
        run_my_agent(model=recorded)                 # or: base_url=recorded.url + "/v1"

The fixture ``replay`` takes the arguments of the function ``replay``. After the test it fails if a
request differed from the recorded run, or if the program asked for fewer calls. With ``pytest
--foldlog-update``, a run's file gets the system prompts and tools that the run did not record.
``docs/how-to/testing.md`` has examples.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from foldlog._testing.recorded import (
        RecordedRun as RecordedRun,
        RunDiffers as RunDiffers,
        replay as replay,
    )

__all__ = ["RecordedRun", "RunDiffers", "replay"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'foldlog.testing' has no attribute {name!r}")
    from foldlog._testing import recorded

    return getattr(recorded, name)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--foldlog-update",
        action="store_true",
        help="add the system prompts and tools that a recorded run lacks to its file",
    )


@pytest.fixture(name="replay")
def _replay(request: pytest.FixtureRequest) -> Iterator[Callable[..., RecordedRun]]:
    from contextlib import ExitStack

    from foldlog._testing.recorded import replay

    update = request.config.getoption("--foldlog-update")
    with ExitStack() as closing:

        def begin(run: Any, conversation: str | None = None, **options: Any) -> RecordedRun:
            recorded = replay(run, conversation, update=update, **options)
            closing.callback(_close, recorded)
            return recorded

        yield begin


def _close(recorded: RecordedRun) -> None:
    # pytest sets ``sys.last_value`` when the test itself has failed. A program may have caught the
    # difference, and failed because of it.
    error = getattr(sys, "last_value", None)
    is_reported = error is not None and str(recorded.failure or "") in str(error)
    recorded.close(check=not is_reported)
