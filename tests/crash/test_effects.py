"""Workers pay and are killed at random. ``python -m tests.crash.effects`` kills more of them."""

import pytest

from tests.crash.effects import MODES, pay_with_kills


@pytest.mark.parametrize("mode", MODES)
def test_no_payment_is_doubled_or_silently_lost(mode):
    outcome = pay_with_kills(mode, 3, seed=1)
    assert (outcome.twice, outcome.lost) == (0, 0)
    assert outcome.kills > 0
    assert outcome.doubts == 0 or mode == "never"
