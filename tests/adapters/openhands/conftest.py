"""The SDK asks for prices on the network and shows a banner when it is imported, unless it is told
not to.
"""

import gc
import os

import pytest

os.environ.update(
    LITELLM_LOCAL_MODEL_COST_MAP="True", OPENHANDS_SUPPRESS_BANNER="1", LOG_LEVEL="ERROR"
)

THEIRS = (
    "ignore::UserWarning:pydantic",
    "ignore::DeprecationWarning",
    "ignore::ResourceWarning",
    "ignore::pytest.PytestUnraisableExceptionWarning",
)
"""Warnings of the SDK and of what it brings: it leaves loops and sockets open."""


def pytest_collection_modifyitems(items):
    for item in items:
        if "adapters/openhands" in item.nodeid:
            for filtered in THEIRS:
                item.add_marker(pytest.mark.filterwarnings(filtered))


@pytest.fixture(autouse=True)
def home(tmp_path_factory, monkeypatch):
    """The SDK looks for skills and profiles in the home folder."""
    monkeypatch.setenv("HOME", str(tmp_path_factory.mktemp("home")))
    yield
    gc.collect()  # while these warnings are ignored
