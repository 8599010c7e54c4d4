"""A step that is killed before any of its statements happens whole, or not at all, or is finished by
the same step after it.
"""

import random
from itertools import count, product
from operator import methodcaller

import pytest

from foldlog.eventstore.log.importing import DETACH, REKEY
from tests.simulation.checks import derived, everything
from tests.simulation.steps import FAULTY, Steps, drawn
from tests.simulation.world import World, sped_up

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

KILLED = FAULTY - {"vacuum"}  # tests/crash kills a vacuum
OF_FILES = {"back_up"}
RARELY = {"close_open_calls", "step"}  # that a conversation has open calls, or is due
OF_SEVERAL_TRANSACTIONS = {"copy", "erase", "ingest", "redact", "rekey"}
CASES = [
    *product(["memory"], sorted(KILLED - OF_FILES)),
    *product(["sqlite"], sorted(KILLED)),
    *product(["postgresql"], sorted(OF_SEVERAL_TRANSACTIONS)),
]


WORLDS = {"erase": 20, "redact": 10}
"""In so many worlds in memory, because the conversation has to have forks."""


def unfinished(site):
    recorder = site.processes[0].store.database.recorder
    left = recorder.query(methodcaller("unfinished"))
    return {(one.conversation, one.operation) for one in left if one.operation in (DETACH, REKEY)}


def look_at_all(world, seed):
    rng = random.Random(seed)
    for site in world.sites:
        everything(site.processes[0], rng)
        derived(site.processes[0], rng)


def is_killed(world, step, statement):
    """Kill a step before a statement, and take it again. Return whether it came to the statement.

    Before, between and after them, one process of each store gives the answers of the model. In the
    end no more detachments and changes of keys are unfinished than before.
    """
    steps = Steps(world)
    forks = [("fork", number) for number in range(6)]
    for each in [*drawn(world.seed, 30), *forks]:
        steps.take(each)
    look_at_all(world, 0)
    began, before = len(world.told), [unfinished(site) for site in world.sites]
    steps.take(step, statement)
    came = "  Killed" in world.told[began:]
    for _ in range(2):
        look_at_all(world, statement)
        steps.take(step)
    for site, earlier in zip(world.sites, before, strict=True):
        assert unfinished(site) <= earlier
    return came


@pytest.fixture
def database(request, recorder):
    """Makes the URLs of the two stores of a world on a server."""
    if recorder != "postgresql":
        return None
    new_url = request.getfixturevalue("postgres_url")
    return lambda: iter([new_url(another=True), new_url()])


@pytest.mark.parametrize("recorder, kind", CASES)
def test_a_step_that_is_killed_before_any_statement_is_done_once_or_not_at_all(
    kind,
    recorder,
    tmp_path,
    whole,
    database,
):
    kills = 0
    worlds = 3 if whole else WORLDS.get(kind, 3)
    for number in range(worlds if recorder == "memory" else 2):
        for statement in count(1) if whole else [1 + 3 * (number % 7)]:
            folder = tmp_path / f"{number} {statement}"
            folder.mkdir()
            urls = database and database().__next__
            world = World(f"{kind} {number}", recorder, folder, urls)
            try:
                with sped_up():
                    came = is_killed(world, (kind, number), statement)
            finally:
                world.close()
            kills += came
            if not came:
                break
    assert kills > 0 or kind in RARELY or recorder != "memory"
