"""The short form of ``python -m tests.simulation.leases``."""

from __future__ import annotations

import pytest

from tests.simulation.leases import MUTATIONS, finds, run


@pytest.mark.parametrize("sqlite, brief", [(False, 4_000), (True, 800)], ids=["memory", "sqlite"])
def test_never_do_two_workers_append_under_a_valid_lease(
    sqlite: bool, brief: int, whole: bool
) -> None:
    assert run(1, 10 * brief if whole else brief, sqlite=sqlite) > brief // 20


@pytest.mark.parametrize("name", MUTATIONS)
def test_the_model_finds_each_mutation(name: str) -> None:
    assert finds(MUTATIONS[name], 1, 8_000)
