"""A step that is killed before any of its statements happens as a whole or not at all, or the same
step finishes it later.
"""

import random
from itertools import count, product
from operator import methodcaller

import pytest

from foldlog.eventstore.log.importing import DETACH, REKEY
from tests.simulation.checks import check_derived, check_everything
from tests.simulation.steps import Steps
from tests.simulation.table import FAULTY, draw_steps
from tests.simulation.world import World, sped_up

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

KILLED = FAULTY - {"vacuum"}  # tests/crash kills a vacuum
OF_FILES = {"back_up"}
RARELY = {"close_open_calls", "step"}  # few conversations have open calls, or are due
LONG = [
    *product(["sqlite"], sorted(KILLED - OF_FILES)),
    *product(["postgresql"], ["erase", "ingest", "rekey"]),
]
"""Killed at the same statements as in memory."""
CASES = [
    *product(["memory"], sorted(KILLED - OF_FILES)),
    *product(["sqlite"], OF_FILES),
    *product(["postgresql"], ["copy", "redact"]),
    *(pytest.param(*case, marks=pytest.mark.long) for case in LONG),
]


WORLDS = {
    ("memory", "copy"): range(1, 3),
    ("memory", "erase"): range(1, 6),
    ("memory", "fork"): range(1),
    ("memory", "ingest"): range(1, 3),
    ("memory", "pop"): range(1, 3),
    ("memory", "redact"): range(1, 4),
    ("postgresql", "copy"): range(2, 3),
}
"""The worlds of the cases that the usual world does not bring to a statement. The usual world is 1 in
memory, and 0 elsewhere: it has files.
"""


def unfinished_operations(site):
    recorder = site.processes[0].store.database.recorder
    rows = recorder.query(methodcaller("unfinished"))
    return {(row.conversation, row.operation) for row in rows if row.operation in (DETACH, REKEY)}


def check_sites(world, seed):
    rng = random.Random(seed)
    for site in world.sites:
        check_everything(site.processes[0], rng)
        check_derived(site.processes[0], rng)


def kill_and_repeat(world, step, statement):
    """Kill a step before a statement, and take it again. Return whether it came to the statement.

    Before, between and after them, one process of each store gives the answers of the model. In the
    end no more detachments and changes of keys are unfinished than before.
    """
    runner = Steps(world)
    forks = [("fork", number) for number in range(6)]
    for earlier_step in [*draw_steps(world.seed, 30), *forks]:
        runner.run_step(earlier_step)
    check_sites(world, 0)
    lines = len(world.trace)
    before = [unfinished_operations(site) for site in world.sites]
    runner.run_step(step, statement)
    is_killed = "  Killed" in world.trace[lines:]
    for _ in range(2):
        check_sites(world, statement)
        runner.run_step(step)
    for site, earlier in zip(world.sites, before, strict=True):
        assert unfinished_operations(site) <= earlier
    return is_killed


@pytest.fixture
def database(request, recorder):
    """Return a function that makes the URLs of the two stores of a world on a server."""
    if recorder != "postgresql":
        return None
    new_url = request.getfixturevalue("postgres_url")
    return lambda: iter([new_url(another=True), new_url()])


@pytest.mark.parametrize("recorder, kind", CASES)
def test_killed_step_is_done_once_or_not(kind, recorder, tmp_path, whole, database):
    kills = 0
    if whole:
        worlds = range(10)
        worlds_min = 3 if recorder == "memory" else 2
    else:
        usual = range(1, 2) if recorder == "memory" else range(1)
        worlds = WORLDS.get((recorder, kind), usual)
        worlds_min = len(worlds)
    for tried, number in enumerate(worlds):
        if tried >= worlds_min and kills:
            break
        for statement in count(1) if whole else [1 + 3 * (number % 7)]:
            folder = tmp_path / f"{number} {statement}"
            folder.mkdir()
            urls = database and database().__next__
            world = World(f"{kind} {number}", recorder, folder, urls)
            try:
                with sped_up():
                    is_killed = kill_and_repeat(world, (kind, number), statement)
            finally:
                world.close()
            kills += is_killed
            if not is_killed:
                break
    assert kills > 0 or kind in RARELY
