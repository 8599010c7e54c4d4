"""Recorded runs as tests. pytest loads this plugin by itself; it imports the rest at the first use.

    def test_refund(replay):
        recorded = replay("tests/runs/refund.jsonl")
        run_my_agent(model=recorded)                 # or: base_url=recorded.url + "/v1"

The fixture ``replay`` takes the arguments of the function ``replay``, but ``update``, which is an
option of pytest. After the test it fails if a request differed from the recorded run, or if the
program asked for fewer calls. With ``pytest --foldlog-update``, a run's file gets the system
prompts and tools that the run did not record.
``docs/how-to/testing.md`` has examples.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from foldlog._testing.recorded import (
        RecordedRun as RecordedRun,
        RunDiffers as RunDiffers,
        ToolFailed as ToolFailed,
        replay as replay,
    )

__all__ = ["RecordedRun", "RunDiffers", "ToolFailed", "replay"]

_ENDED_BY = pytest.StashKey[BaseException | None]()
"""What ended a test that uses ``replay`` before its end: a failure, or a skip."""


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


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> None:
    if call.excinfo is not None and _ENDED_BY in item.stash:
        item.stash[_ENDED_BY] = call.excinfo.value


@pytest.fixture(name="replay")
def _replay(request: pytest.FixtureRequest) -> Iterator[Callable[..., RecordedRun]]:
    from foldlog._testing.recorded import replay

    update = request.config.getoption("--foldlog-update")
    stash = request.node.stash
    stash[_ENDED_BY] = None
    with ExitStack() as closing:
        # An exception holds the frames of its test, so it goes with the test.
        closing.callback(stash.__delitem__, _ENDED_BY)

        def begin(run: Any, conversation: str | None = None, **options: Any) -> RecordedRun:
            recorded = replay(run, conversation, update=update, **options)
            closing.callback(_close, recorded, stash)
            return recorded

        yield begin


def _close(recorded: RecordedRun, stash: pytest.Stash) -> None:
    """End the replay of a run. If the test failed or was skipped, it was not to ask for all calls,
    so this is not checked. But if a request differed and the error of the test does not say so, the
    difference is raised: the program may have caught it, and failed because of it.
    """
    error = stash[_ENDED_BY]
    is_reported = error is not None and str(recorded.failure or "") in str(error)
    recorded.close(check=not is_reported)
