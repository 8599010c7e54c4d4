"""The steps of a world. Each kind of step in ``steps.txt`` is a method."""

from tests.simulation import checks
from tests.simulation.appends import AppendSteps
from tests.simulation.imports import ImportSteps
from tests.simulation.removals import RemovalSteps
from tests.simulation.stores import StoreSteps


class Steps(AppendSteps, RemovalSteps, ImportSteps, StoreSteps):
    def search(self, rng, process):
        checks.check_search(process, rng)

    def recent(self, rng, process):
        checks.check_recent(process, rng)

    def follow(self, rng, process):
        checks.check_follow(process, anew=rng.random() < 0.3)

    def audit(self, rng, process):
        checks.check_audit(process)

    def serve(self, rng, process):
        # a server caches a page: half of the time the same one is asked for again
        first = min(process.site.model.living, default="a")
        again = rng.random() < 0.5
        name = first if again else self.draw_name(rng, process.site, living=False)
        checks.check_served(process, name, rng)

    def report(self, rng, process):
        checks.check_derived(process, rng)

    def verify(self, rng, process):
        checks.check_verify(process)
        checks.check_list(process)

    def read(self, rng, process):
        name = self.draw_name(rng, process.site, living=False)
        checks.check_conversation(process, name, rng)
        checks.check_list(process)

    def reopen(self, rng, process):
        site = process.site
        site.reopen(site.processes.index(process))

    def jump(self, rng, process):
        seconds = rng.choice((-1, -60, -86_400, 3_600, 86_400))
        self.world.now = max(0, self.world.now + seconds * 1_000_000)
