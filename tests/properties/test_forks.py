"""Forks against a tree of lists; ``python -m tests.properties.forks`` runs many sequences."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
from pydantic import SecretStr

from foldlog.eventstore import open_store
from foldlog.eventstore.log.keys import KeyRing
from tests.properties.forks import run_sequence

KEYS = KeyRing([SecretStr("3d" * 32)])


@pytest.mark.parametrize("keys", [None, KEYS], ids=["plain", "encrypted"])
def test_a_store_with_forks_answers_as_a_tree_of_lists_does(tmp_path: Path, keys: KeyRing | None):
    for number in range(8):
        run_sequence(number, partial(open_store, "memory:", keys=keys))
    opened = partial(open_store, f"sqlite:///{tmp_path}/forks.db?durability=relaxed", keys=keys)
    run_sequence(100, opened, reopens=True)
