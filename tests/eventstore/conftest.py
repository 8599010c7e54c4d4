"""Where the tests of this folder have their stores."""

import pytest


@pytest.fixture
def path(tmp_path):
    """The path of a file that is not there yet."""
    return tmp_path / "history.db"
