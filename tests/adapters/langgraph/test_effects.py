"""Tools that ``foldlog.effect`` marks do not run twice."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.adapters.killed import check_killed_in_a_tool


@pytest.mark.parametrize("durability", ["sync", "exit"])
def test_a_tool_in_which_the_process_was_killed_does_not_run_again(
    durability: str, tmp_path: Path
) -> None:
    check_killed_in_a_tool(f"langgraph-{durability}", tmp_path)
