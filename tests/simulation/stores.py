"""The steps on a whole store: copies, backups, power cuts, keys, vacuums."""

import random
from functools import partial
from pathlib import Path

from foldlog.eventstore.opening import restore_store
from tests.simulation import checks, model
from tests.simulation.checks import check_equal
from tests.simulation.conversion import to_product
from tests.simulation.runner import STOPPED, Runner, model_version
from tests.simulation.world import NAMES, Follower, Process


class StoreSteps(Runner):
    def copy(self, rng, process):
        """Copy the source to the copy; a second run then adds nothing."""
        source, target = self.world.sites
        process = rng.choice(source.processes)
        writer = target.processes[0]

        def copy():
            return writer.histories.maintenance.copy_from(process.store, jobs=1)

        def update_model():
            """Copy into the model what is copied by now, if another process is about to change the
            source.
            """
            if self.nested:
                for name in source.model.names():
                    ends = [None]
                    if name in target.model.living:
                        ends.append(self.stored_version(target, name))
                    for end in ends:
                        trial = target.model.snapshot()
                        trial.copy(name, source.model, end)
                        if self._is_as_stored(target, trial, name):
                            target.model = trial
                            break

        copied, error = self.call_product(process, copy, update_model)
        self.end_faults(target)
        if error is not None:
            living = source.model.living.values()
            target.staged_words.update(
                checks.made_words([conversation.events for conversation in living])
            )
        if error is not None or self.interleaved or rng.random() < 0.3:
            writer = target.processes[0]
            process = rng.choice(source.processes)
            copied = copy()
        problems = {row.conversation for row in copied if row.problem is not None}
        expected = target.model.copy_from(source.model)
        target.erased_words |= source.erased_words
        if problems != expected or rng.random() < 0.3:
            different = {
                row.conversation
                for row in writer.histories.maintenance.differences_from(process.store)
            }
            different &= source.model.living.keys() | target.model.living.keys()
            check_equal("copied", sorted(problems | different), sorted(expected))
        self.trace(f"  copied {len(copied)}, problems {sorted(problems)}")
        for name in NAMES:
            checks.check_view(writer, name, tail=False)
        checks.check_conversation(writer, rng.choice(NAMES), rng)

    def _is_as_stored(self, site, store, name):
        """Return whether a conversation has the version and the redactions that are stored."""
        version = self.stored_version(site, name)
        rows = site.processes[0].store.events(name) if version else ()
        events = store.living[name].events if name in store.living else []
        return version == model_version(store, name) and [
            event.id for event in rows if event.redacted is not None
        ] == [event["id"] for event in events if event["redacted"]]

    def back_up(self, rng, process):
        site = process.site
        if site.path is None:
            return
        path = site.path.with_name(f"{site.name}-{self.world.new_word()}.backup")
        _, error = self.call_product(
            process, lambda: process.histories.maintenance.back_up(str(path)), lambda: None
        )
        # with a step of another process within it, the backup may be from before that step
        if error is None and not self.interleaved:
            site.backups.append((path, site.model.snapshot(), site.ring))

    def restore(self, rng, process):
        site = process.site
        backups = [backup for backup in site.backups if backup[2] == site.ring]
        if not backups or site.path is None:
            return
        path, restored_model, _ = rng.choice(backups[-3:])
        keys = process.store.database.settings.keys
        restored = restore_store(site.url, str(path), keys=keys)
        tags = {tomb.tag for tombs in site.model.tombs.values() for tomb in tombs}
        erased = [name for name, former in restored_model.living.items() if former.tag in tags]
        check_equal("erased since", list(restored.erased_since), sorted(erased))
        for replaced in site.path.parent.glob(f"{site.path.name}.replaced-*"):
            replaced.unlink()
        error = checks.error_of(
            lambda: process.histories["a"].append(to_product(model.message("late")))
        )
        is_refused = error in ("StoreRefused", "ConversationErased")
        check_equal("append to a file that was replaced", is_refused, True, error)
        site.model = restored_model.snapshot()
        site.erased_words.clear()
        site.reopen()
        self.trace(f"  {path.name}")

    def lose_power(self, rng, process):
        """Take some steps, then cut SQLite's log at a random byte, as a power cut may: SQLite drops
        the commit that is cut and all later commits.
        """
        site = process.site
        if site.path is None:
            return
        log = Path(f"{site.path}-wal")
        states = [(_size(log), site.model.snapshot())]
        before = site.path.stat()
        for _ in range(rng.randrange(1, 4)):
            kind = rng.choice(
                ("append", "append", "document", "create", "fork", "forget", "search")
            )
            if rng.random() < 0.02:
                kind = "report"  # stores figures; takes long
            self.trace(f"  {kind}")
            process = rng.choice(site.processes)
            self._run_kind(kind, random.Random(rng.randrange(2**32)), process)
            states.append((_size(log), site.model.snapshot()))
        after = site.path.stat()
        sizes = [size for size, _ in states]
        has_grown = sizes == sorted(sizes) and sizes[0] < sizes[-1]
        is_synced = (after.st_mtime_ns, after.st_size) != (before.st_mtime_ns, before.st_size)
        if is_synced or not has_grown:
            return  # SQLite has begun its log again
        size = rng.randrange(sizes[0], sizes[-1] + 1)
        stored = site.path.read_bytes()
        logged = log.read_bytes()[:size]
        for other in site.processes:
            other.close()
        # closing the store has written the log into its file: undo that
        with site.path.open("r+b") as file:
            file.truncate(len(stored))
            file.write(stored)
        log.write_bytes(logged)
        # new events get the lost positions again: audit file and follower begin anew
        for path in site.path.parent.glob(f"{site.name}.audit*"):
            path.unlink()
        site.follower = Follower()
        kept = sum(length <= size for length in sizes) - 1
        self.trace(f"  {kept} of {len(states) - 1} steps are kept")
        site.processes = [Process(site) for _ in site.processes]
        rows = site.processes[0].store.iter_conversations()
        versions = {row.id: row.version for row in rows if row.erased_at is None}
        # the end of a step may be values that were derived from it: then the step itself is kept
        for _, store in states[kept : kept + 2]:
            site.model = store
            if versions == checks.versions_of(store):
                break
        checks.check_list(site.processes[0])
        for name in NAMES:
            checks.check_view(site.processes[-1], name)

    def rekey(self, rng, process):
        site = process.site
        change = rng.choice(("key", "key", "other key", "decrypt", "compress"))
        new_ring = site.ring
        match change:
            case "key" | "other key":
                new_key = "a" if change == "key" else "b"
                new_ring = (new_key,)
                site.ring = (new_key, *(key for key in site.ring if key != new_key))
            case "decrypt" if site.ring:
                new_ring = ()
            case _:
                change = "compress"
                site.compression = rng.choice(("none", "zlib", "zstd"))
        number = site.processes.index(process)
        seam = process.seam
        kill_at = seam.kill_at
        refuse_at = seam.refuse_at
        site.reopen()
        process = site.processes[number]
        process.seam.arm(kill_at, refuse_at)
        if not self.fault:
            self.interleave(process, rng)
        self.trace(f"  {change}, with {site.ring}")
        rekey = partial(process.histories.maintenance.rekey, decrypt=change == "decrypt")
        _, error = self.call_product(process, rekey, lambda: None)
        if error is not None:
            check_equal("rekey: error", error in STOPPED, True, error)
            return
        if self.interleaved:
            rekey()  # the other process may have begun a conversation in the old form
        site.ring = new_ring
        site.reopen()
        if site.model.living:
            database = site.processes[0].store.database
            key_ids = {*database.recorder.value("key_ids").split()}
            names = [*database.settings.keys.names] if site.ring else []
            # an earlier rekey that was refused may have left a second key in the ring
            check_equal("keys", key_ids, {*names[:1]}, change)

    def vacuum(self, rng, process):
        site = process.site
        if site.path is None:
            return
        before = checks.erased_words(site)
        _, error = self.call_product(process, process.histories.maintenance.vacuum, lambda: None)
        if error is not None:
            check_equal("vacuum: error", error in STOPPED, True, error)
            return
        site.unfinished.clear()
        words = checks.erased_words(site)
        # another process may have erased words after the file was rewritten
        if site.processes[0].store.database.bytes_pending:
            check_equal("bytes pending", self.interleaved, True)
            words &= before
        for path in site.path.parent.iterdir():
            if path.name.startswith(site.path.name):
                checks.check_no_words("bytes left", words, path)

    def rebuild(self, rng, process):
        name = self.draw_name(rng, process.site)
        if name in process.site.model.living:
            process.histories.views.rebuild(name)
            checks.check_conversation(process, name, rng)


def _size(path):
    return path.stat().st_size if path.exists() else 0
