"""Warnings that litellm gives about itself when it is first imported, and nothing else, are let pass."""

from __future__ import annotations

import pytest

LITELLMS_OWN_WARNINGS = (
    # It silences these two as it is imported; pytest's own filters come back after the test in which that happened.
    r"ignore:.*using the `ReadOnly` qualifier:UserWarning",
    r"ignore:.*conflict with protected namespace:UserWarning",
    # It dumps a reply of the wrong type through its own pydantic models before it refuses it.
    r"ignore:Pydantic serializer warnings:UserWarning",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(__file__.rpartition("/")[0]):
            for warning in LITELLMS_OWN_WARNINGS:
                item.add_marker(pytest.mark.filterwarnings(warning))
