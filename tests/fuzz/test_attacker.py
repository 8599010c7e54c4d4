"""Somebody who can write the file and has no key changes nothing undetected. ``python -m
tests.fuzz.attacker`` makes all attacks.
"""

from itertools import islice

import pytest

from tests.fuzz.attacker import Trial
from tests.how_many import some


@pytest.mark.parametrize("start", [0, 1, 2])
def test_changes_without_the_key_are_noticed(tmp_path, start):
    trial = Trial(tmp_path)
    assert list(trial.run(some(islice(trial.attacks(), 31 * start, None, 97), 25))) == []
    assert trial.outcomes["error"] > 5


def test_no_forgery_is_believed(tmp_path):
    trial = Trial(tmp_path)
    words = ("forge", "another", "take", "cut", "delete", "make", "give")
    forgeries = [(name, attack) for name, attack in trial.attacks() if name.startswith(words)]
    assert list(trial.run(some(forgeries, 25))) == []
    assert trial.outcomes["error"] > 5


def test_changed_revisions_give_no_wrong_answer(tmp_path):
    trial = Trial(tmp_path)
    of_revisions = [
        (name, attack) for name, attack in trial.attacks() if name.startswith("records")
    ]
    assert list(trial.run(some(islice(of_revisions, 0, None, 2), 20))) == []
    assert trial.outcomes["right"] + trial.outcomes["error"] > 10
