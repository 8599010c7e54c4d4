"""The short form of ``python -m tests.simulation.leases``."""

import pytest

from foldlog._history.lease import LeaseBlock
from tests.simulation.leases import Mismatch, run


@pytest.mark.parametrize("sqlite, brief", [(False, 4_000), (True, 800)], ids=["memory", "sqlite"])
def test_two_workers_never_append_under_one_lease(sqlite, brief, whole):
    assert run(1, 10 * brief if whole else brief, sqlite=sqlite) > brief // 20


def test_append_without_lease_check_is_found(monkeypatch):
    monkeypatch.setattr(LeaseBlock, "_fence", lambda self, reader: None)
    with pytest.raises(Mismatch, match="was renewed"):
        run(1, 8_000)
