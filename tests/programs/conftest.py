"""The programs are tested by ``scripts/test --programs``, which installs them."""

import os

INSTALLED = "FOLDLOG_TEST_PROGRAMS"


def pytest_ignore_collect() -> bool | None:
    return None if INSTALLED in os.environ else True
