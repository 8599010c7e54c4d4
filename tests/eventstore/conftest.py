"""The fixture with the place of a test's store."""

import pytest


@pytest.fixture
def path(tmp_path):
    """The path of a file that is not there yet."""
    return tmp_path / "history.db"
