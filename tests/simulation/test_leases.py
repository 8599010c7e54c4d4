"""The short form of ``python -m tests.simulation.leases``."""

import pytest

from foldlog._history.lease import LeaseBlock
from tests.simulation import leases
from tests.simulation.leases import Mismatch, run


@pytest.mark.parametrize("sqlite, brief", [(False, 4_000), (True, 800)], ids=["memory", "sqlite"])
def test_two_workers_never_append_under_one_lease(sqlite, brief, whole):
    assert run(1, 10 * brief if whole else brief, sqlite=sqlite) > brief // 20


@pytest.mark.parametrize("left_out, found", [("append", "was renewed"), ("renew", "appended, but")])
def test_a_lease_that_is_not_checked_is_found(monkeypatch, left_out, found):
    monkeypatch.setattr(LeaseBlock, "_fence", lambda self, reader: None)
    monkeypatch.setitem(leases._STEPS, left_out, 0)
    with pytest.raises(Mismatch, match=found):
        run(1, 8_000)
