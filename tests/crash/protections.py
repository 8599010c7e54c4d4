"""Take each protection out, one at a time, and see a test fail without it.

    python -m tests.crash.protections [NAME…]

It works on a copy of the project, and prints the table of README.md. Exit status 1 where a test passed all the same:
such a test shows nothing.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
SQLITE = "eventstore/recorders/sqlite"
QUEUE = "eventstore/recorders/commit_queue.py"


class Protection(NamedTuple):
    """What protects, where it is, what stands in its place once it is taken out, and the test that must fail then."""

    what: str
    file: str
    code: str
    without: str
    test: str


PROTECTIONS = {
    "not-a-store": Protection(
        "no file is made beside what is not a store",
        f"{SQLITE}/recorder.py",
        "        look = self._look() if has_content else None",
        "        look = None",
        "tests/eventstore/test_sqlite.py -k no_database",
    ),
    "regular-file": Protection(
        "… and a pipe or a device is not one",
        f"{SQLITE}/recorder.py",
        "        check_is_file(self.path, status)\n",
        "",
        "tests/eventstore/test_sqlite.py -k regular_file",
    ),
    "half-erased": Protection(
        "an erasure that the disk ends says how far it came",
        "eventstore/maintenance/erase.py",
        '    error.args = (f"{done} ({cause}); run the same command again to finish it",)\n',
        "",
        "tests/eventstore/test_erasure.py -k disk_ends",
    ),
    "documents": Protection(
        "new values of documents are written in the transaction of their events",
        "eventstore/documents/changes.py",
        "            batch = given if change is None else [*given, change]\n",
        """            if change is not None and given:
                self._store.append(
                    conversation, given, expected_version=expected_version, idempotency_key=idempotency_key
                )
                given, expected_version, idempotency_key = [], ANY_VERSION, None
            batch = given if change is None else [*given, change]
""",
        "tests/crash/test_documents.py",
    ),
    "generation": Protection(
        "a writer of an erased conversation writes nothing into another one with its id",
        "eventstore/writing/generation.py",
        "    if generation is not None and generation.key is not None and (found",
        "    if generation is None and (found",
        "tests/conformance/test_generations.py -k writer_that_opened and memory",
    ),
    "recording": Protection(
        "records of a conversation are written by themselves where its id was that of an erased one",
        "foldlog/recording.py",
        "        if decoder is None or key != history._meet():",
        "        if decoder is None:",
        "tests/foldlog/formats/test_live.py -k used_again",
    ),
    "transaction": Protection(
        "a batch is one transaction",
        f"{SQLITE}/transaction.py",
        "        if len(rows) == 1:\n",
        """        if len(rows) > 1:
            self._execute(_INSERT[rows[0].encoding == _PLAIN], (position, key, *rows[0]))
            self._execute("COMMIT")
            self._execute("BEGIN IMMEDIATE")
            rows, position = rows[1:], position + 1
        if len(rows) == 1:
""",
        "tests/crash/test_wal.py",
    ),
    "projection": Protection(
        "a revision is written in the transaction of its events",
        "eventstore/store.py",
        "                projection.project(writing, events)",
        "                self._later = (projection, writing, events)",
        "tests/crash/test_crashes.py -k killed_before_any_statement and append_batches",
    ),
    "dedupe": Protection(
        "an event that was left out of a batch sent again was stored, with its source id, in one transaction",
        "eventstore/writing/appending.py",
        "            new.remember(writing, version, begins=version == 0)",
        "            pass",
        "tests/crash/test_crashes.py -k killed_before_any_statement and append_deduped",
    ),
    "full": Protection(
        "a commit is synced (`synchronous=FULL`)",
        f"{SQLITE}/connections.py",
        "{'FULL' if durable else 'NORMAL'}",
        "NORMAL",
        "tests/crash/test_crashes.py -k power_cut and append",
    ),
    "failed-commit": Protection(
        "a commit that fails is no success",
        f"{SQLITE}/writing.py",
        'self.connection.execute("COMMIT")',
        "exec(\"try: self.connection.execute('COMMIT')\\nexcept sqlite3.Error: self.connection.rollback()\")",
        "tests/crash/test_disk.py -k any_sync and append_batches",
    ),
    "closes": Protection(
        "after an error of the disk the store closes itself",
        f"{SQLITE}/writing.py",
        "and (self._commit_failed or leaves_doubt(error))",
        "and False",
        "tests/crash/test_disk.py -k nothing_is_written_until",
    ),
    "migration": Protection(
        "a migration is one transaction",
        f"{SQLITE}/schema.py",
        "                execute(statement)\n",
        """                execute(statement)
                execute("COMMIT")
                execute("BEGIN IMMEDIATE")
""",
        "tests/crash/test_crashes.py -k killed_before_any_statement and migrate",
    ),
    "log-begins-again": Protection(
        "a log that is always written, and written back beside the commits, begins again",
        f"{SQLITE}/log/checkpoints.py",
        "            return AT if maintenance.restart_log(writer) else int(frames) + AT",
        "            return AT",
        "tests/eventstore/test_checkpoints.py -k always_written",
    ),
    "log-in-commits": Protection(
        "where the thread that writes the log back fails, SQLite does it in a commit",
        f"{SQLITE}/writing.py",
        '            self.connection.execute(f"PRAGMA wal_autocheckpoint = {IN_COMMITS_AT}")\n',
        '            self.connection.execute("PRAGMA wal_autocheckpoint = 0")\n',
        "tests/eventstore/test_checkpoints.py -k no_thread",
    ),
    "log-keeps-up": Protection(
        "… and where it is late, writers wait for it",
        f"{SQLITE}/log/checkpoints.py",
        "        elif pages >= IN_COMMITS_AT:",
        "        elif False:",
        "tests/eventstore/test_checkpoints.py -k does_not_keep_up",
    ),
    "log-and-erasure": Protection(
        "what is erased is not written back into the file while its bytes are cleared away",
        f"{SQLITE}/recorder.py",
        "            with self._checkpoints.none_beside():\n                yield connection",
        "            yield connection",
        "tests/eventstore/test_checkpoints.py -k erased_is_gone",
    ),
    "log-and-close": Protection(
        "a store that is closed waits for the thread that writes its log back",
        f"{SQLITE}/recorder.py",
        "        self._checkpoints.stop(self._patience_s)\n",
        "",
        "tests/eventstore/test_checkpoints.py -k waits_for_its_checkpoint",
    ),
    "log-and-fork": Protection(
        "… and so does a fork",
        f"{SQLITE}/recorder.py",
        "        checkpointed = self._checkpoints.stop(patience_s)  # first",
        "        checkpointed = True  # first",
        "tests/eventstore/test_checkpoints.py -k a_fork_waits",
    ),
    "schema": Protection(
        "each transaction looks whether the schema is still its own",
        f"{SQLITE}/connections.py",
        'if connection.execute("PRAGMA user_version").fetchone()[0] != schema.NEWEST:',
        "if False:",
        "tests/crash/test_processes.py -k older_than_the_file",
    ),
    "staging": Protection(
        "a long import is staged, and seen when it is whole",
        "eventstore/writing/importing.py",
        "        return self._stage(first, second, history)\n",
        """        chunk, at = first + second, 0
        while chunk:
            _, at = self._recorder.transact(partial(self._append, chunk=chunk, at=at))
            chunk = _chunk(history)
        return at, at
""",
        "tests/crash/test_crashes.py -k killed_before_any_statement and ingest_staged",
    ),
    "left-over": Protection(
        "an import discards what killed ones left",
        "eventstore/writing/importing.py",
        "        discard_staged(self._recorder, self._conversation)\n",
        "",
        "tests/crash/test_crashes.py -k killed_before_any_statement and ingest_staged",
    ),
    "interrupted-import": Protection(
        "an import that Ctrl-C ends is discarded",
        "eventstore/writing/importing.py",
        "except BaseException:",
        "except Exception:",
        "tests/crash/test_processes.py -k ctrl_c_inside_an_import",
    ),
    "published": Protection(
        "what is published cannot be discarded",
        f"{SQLITE}/transaction.py",
        "        if visible and not erased:\n            return True\n",
        "",
        "tests/conformance/test_recorders.py -k cannot_be_discarded",
    ),
    "keys": Protection(
        "the number of a conversation is not given twice",
        "eventstore/recorders/sql/sqlite/0001_first.sql",
        "key            INTEGER PRIMARY KEY AUTOINCREMENT",
        "key            INTEGER PRIMARY KEY",
        "tests/conformance/test_recorders.py -k takes_nothing_more",
    ),
    "positions": Protection(
        "positions are not given twice",
        "eventstore/recorders/sql/sqlite/0001_first.sql",
        "    UPDATE store SET value = old.position WHERE name = 'positions_given';",
        "    SELECT 1;",
        "tests/eventstore/test_maintenance.py -k never_given_twice",
    ),
    "taken-id": Protection(
        "an id is taken once",
        f"{SQLITE}/transaction.py",
        "        if taken:",
        "        if False:",
        "tests/conformance/test_recorders.py -k taken_once",
    ),
    "version": Protection(
        "an expected version is checked in the transaction",
        "eventstore/conversation.py",
        "if expected is not ANY_VERSION and expected != state.version:",
        "if False:",
        "tests/crash/test_crashes.py -k many_writers",
    ),
    "write-lock": Protection(
        "processes wait for a lock before they write",
        f"{SQLITE}/write_lock.py",
        "                flock(self._file, _AT_ONCE)",
        "                pass",
        "tests/crash/test_crashes.py -k many_writers",
    ),
    "chunks": Protection(
        "an import works in small transactions",
        "eventstore/writing/importing.py",
        "    for encoded in islice(history, CHUNK):\n        chunk.append(encoded)\n",
        "    for encoded in history:\n        chunk.append(encoded)\n        continue\n",
        "-m tests.crash writers --seconds 5",
    ),
    "forks-kept": Protection(
        "a conversation that forks read is not erased alone",
        "eventstore/maintenance/erase.py",
        "    if forks := _names(transaction, found.key):\n",
        "    if forks := []:\n",
        "tests/conformance/test_forks.py -k not_erased_alone",
    ),
    "forks-finished": Protection(
        "an erasure with forks that was interrupted is finished when it is run again",
        "eventstore/maintenance/erase.py",
        "[fork.id for fork in forks_of_key(reader, found.key)]\n\n",
        "_names(reader, found.key)\n\n",
        "tests/conformance/test_forks.py -k interrupted_erasure",
    ),
    "forks-border": Protection(
        "the first event of a fork commits to the head that it left",
        "eventstore/stored/rows.py",
        "    if event_id == conversation.parent_version:\n",
        "    if False:\n",
        "tests/conformance/test_forks.py -k commits_to_the_head",
    ),
    "forks-grown": Protection(
        "a fork that lost its own events is damaged and not short",
        "eventstore/stored/write_transaction.py",
        "            self._reader.change(found.key, changes.Grown())\n",
        "            pass\n",
        "tests/eventstore/test_forks.py -k lost_its_own_events",
    ),
    "forks-past": Protection(
        "a copy of a fork knows under which names its past was recorded",
        "eventstore/maintenance/copy.py",
        "            writing.keep_past(what.past, what.past[-1].stop)\n",
        "            pass\n",
        "tests/conformance/test_forks.py -k copied_with_its_past",
    ),
    "fork": Protection(
        "connections are closed before a fork",
        f"{SQLITE}/recorder.py",
        "        process_forks.watch(self)\n",
        "",
        "tests/crash/test_processes.py -k forked_child_and_its_parent",
    ),
    "inherited": Protection(
        "a child that was forked in the middle of something is refused the file",
        f"{SQLITE}/process_forks.py",
        "            _inherited.add(identity(forkable.path))",
        "            pass",
        "tests/crash/test_processes.py -k forked_while_the_store_is_read",
    ),
    "inherited-lock": Protection(
        "a child does not hold its parent's write lock",
        f"{SQLITE}/write_lock.py",
        "                os.close(inherited)",
        "                pass",
        "tests/crash/test_processes.py -k does_not_keep_the_turn",
    ),
    "group": Protection(
        "a job that failed after it wrote is taken out of its group",
        QUEUE,
        "                self._spoiled = self._spoiled or fault is Fault.OF_JOB_THAT_WROTE\n",
        "",
        "tests/eventstore/test_sqlite.py -k takes_nothing_of_the_others",
    ),
    "leadership": Protection(
        "an interrupted leader lets the next thread lead",
        QUEUE,
        "            if leads:\n",
        "            if False:\n",
        "tests/eventstore/test_commit_queue.py -k interrupted_leader",
    ),
    "committed": Protection(
        "what was committed when Ctrl-C came is not run again",
        f"{SQLITE}/writing.py",
        "                self._file.check_committed()\n                self._stage = _COMMITTED",
        "                pass",
        "tests/eventstore/test_sqlite.py -k says_what_was_committed",
    ),
    "nested": Protection(
        "a write inside a write is refused",
        QUEUE,
        "        if mark in INSIDE:\n            raise nested(self._name)\n        job = Job(work",
        "        job = Job(work",
        "tests/conformance/test_foreign_code.py -k guard_that_appends and sqlite",
    ),
    "own-thread": Protection(
        "a job runs in the thread of its caller",
        QUEUE,
        "                if not following.any_thread or leader.mark[0] == self._main_thread or leader.done:",
        "                if leader.done:",
        "tests/conformance/test_foreign_code.py -k thread_and_the_context and sqlite",
    ),
    "late": Protection(
        "what interrupts a thread that runs the job of another reaches the thread that it interrupted",
        QUEUE,
        "        leader.late = error\n",
        "",
        "tests/eventstore/test_commit_queue.py -k in_the_job_of_another",
    ),
    "note": Protection(
        "an exception that comes after the commit says that the events are written",
        QUEUE,
        "            if job.written:\n                note_committed(error)\n",
        "",
        "tests/eventstore/test_interruptions.py -k sqlite",
    ),
    "commit-stands": Protection(
        "an exception right after COMMIT does not make the group run again",
        f"{SQLITE}/writing.py",
        "        if self._stage == _COMMITTING and connection is not None and not connection.in_transaction:",
        "        if False:",
        "tests/eventstore/test_interruptions.py -k sqlite",
    ),
    "whose-error": Protection(
        "an error of another database inside a guard is the guard's",
        f"{SQLITE}/errors.py",
        "    return module.startswith(_OF_RECORDERS)",
        "    return True",
        "tests/conformance/test_foreign_code.py -k error_of_a_guard and sqlite",
    ),
    "patience": Protection(
        "a thread waits for others no longer than its patience",
        QUEUE,
        "job.wake.acquire(timeout=max(job.deadline - time.monotonic(), 0.0))",
        "job.wake.acquire()",
        "tests/eventstore/test_commit_queue.py -k waits_too_long",
    ),
    "stopped": Protection(
        "a process waits for a stopped one no longer than its patience",
        f"{SQLITE}/write_lock.py",
        "        if not pending.wait(until):",
        "        if not pending.wait(until + 1e6):",
        "tests/eventstore/test_write_lock.py -k stopped_writer_is_named",
    ),
    "gave-up": Protection(
        "a lock that comes after its waiter gave up is released",
        f"{SQLITE}/write_lock.py",
        "            if not self._wanted:\n                self.close()\n",
        "",
        "tests/eventstore/test_write_lock.py -k gave_up_is_released",
    ),
    "committed-in-memory": Protection(
        "an exception that comes right after a commit in memory says that the events are written",
        f"{SQLITE}/memory.py",
        "            if committed:\n                note_committed",
        "            if False:\n                note_committed",
        "tests/eventstore/test_interruptions.py -k memory",
    ),
    "erased-since": Protection(
        "a conversation that is erased while it is read is not said to be damaged",
        "eventstore/stored/read_transaction.py",
        "    now = find_existing(database, reader, found.id)\n",
        "    now = database.find(reader, found.id) or found\n",
        "tests/conformance/test_erased_while_read.py -k reading_on and sqlite",
    ),
    "erased-and-begun-again": Protection(
        "… nor where another conversation has its id now",
        "eventstore/stored/read_transaction.py",
        "    if now.key != found.key:\n",
        "    if False:\n",
        "tests/conformance/test_erased_while_read.py -k another_conversation and sqlite",
    ),
    "erased-verify": Protection(
        "… nor while it is verified",
        "eventstore/maintenance/verify.py",
        "        if erased is not None:\n",
        "        if False:\n",
        "tests/conformance/test_erased_while_read.py -k verifying and sqlite",
    ),
    "clock": Protection(
        "a moment that the store could not read again is not acknowledged",
        "eventstore/values/arguments.py",
        "    if not 0 <= microseconds < YEAR_10000:",
        "    if False:",
        "tests/conformance/test_arguments.py -k clock and sqlite",
    ),
    "receipts": Protection(
        "an archive refuses no id for ever unless it is trusted to",
        "foldlog/archives/reading.py",
        "if rest.what.erasure is not None and not tombstones:",
        "if False:",
        "tests/foldlog/test_archives.py -k receipts_come_only",
    ),
    "archive-clock": Protection(
        "an archive sets no clock to a time to come",
        "foldlog/archives/reading.py",
        "        if moment > self._latest:",
        "        if False:",
        "tests/foldlog/test_archives.py -k time_to_come",
    ),
    "foreign-schema": Protection(
        "a file with a trigger or a view of another maker is not opened",
        f"{SQLITE}/schema.py",
        "    _check_nothing_foreign(path, schema, found)\n",
        "",
        "tests/eventstore/test_sqlite.py -k schema_that_is_not_ours",
    ),
    "changed-schema": Protection(
        "a schema that changes while the store is open is checked before the next append",
        f"{SQLITE}/writing.py",
        "        if schema_version == self._schema_version:\n",
        "        if True:\n",
        "tests/eventstore/test_sqlite.py -k takes_in_nothing_more",
    ),
    "one-moment": Protection(
        "a reader sees one moment",
        f"{SQLITE}/recorder.py",
        '            connection.execute("BEGIN")\n',
        "",
        "tests/eventstore/test_sqlite.py -k sees_one_moment",
    ),
    "verified": Protection(
        "a backup is verified",
        "eventstore/maintenance/backup.py",
        "            made = list(verdicts(Database(copy, database.settings)))",
        "            made = list(verdicts(Database(copy, database.settings)))[:0]",
        "tests/eventstore/test_maintenance.py -k tells_what_is_damaged",
    ),
    "stale": Protection(
        "an import that lives is not taken for dead",
        "eventstore/maintenance/backup.py",
        "database.now() - _STALE_US",
        "database.now()",
        "tests/eventstore/test_maintenance.py -k spares_those_that_live",
    ),
    "others": Protection(
        "what a process knows of its last append counts only while nobody else has committed",
        f"{SQLITE}/writing.py",
        "os.pread(self._index, _HEADER_BYTES, 0) != left:",
        "left is None:",
        "tests/crash/test_crashes.py -k many_writers",
    ),
    "in-progress": Protection(
        "a View goes on with what was appended, and not with what a transaction in progress has inserted",
        f"{SQLITE}/writing.py",
        "        left, self._left = self._left, None  # so",
        "        left = self._left  # so",
        "tests/eventstore/test_sqlite.py -k not_committed_is_not_told",
    ),
    "not-ours": Protection(
        "a program without our write lock that commits right after our commit is noticed",
        f"{SQLITE}/writing.py",
        "left if commits - self._commits == self._transaction.inserted else None",
        "left",
        "tests/projections/test_grown_views.py -k not_ours",
    ),
    "others-since": Protection(
        "a View goes on with what this process appended only while nobody else has committed",
        f"{SQLITE}/writing.py",
        "return known if header == left and self._left is left else None",
        "return known",
        "tests/projections/test_grown_views.py -k others_appended",
    ),
    "rows-taken-back": Protection(
        "rows of a transaction that was rolled back come into no View",
        "eventstore/stored/rows.py",
        "    if head != now.head or any",
        "    if any",
        "tests/projections/test_grown_views.py -k rolled_back",
    ),
    "taken-back": Protection(
        "what was rolled back is forgotten",
        f"{SQLITE}/writing.py",
        "        left, self._left = self._left, None  # so",
        "        left = self._left  # so",
        "tests/eventstore/test_sqlite.py -k rolled_back_is_forgotten",
    ),
    "mode": Protection(
        "the file is its owner's alone from its first moment",
        f"{SQLITE}/connections.py",
        "os.O_RDWR, 0o600",
        "os.O_RDWR, 0o644",
        "tests/eventstore/test_sqlite.py -k owners_alone",
    ),
    "one-name": Protection(
        "a relative name is resolved once, when the store is opened",
        f"{SQLITE}/store_file.py",
        "        self.path, self._found = _behind_links(self.name)\n",
        "        self.path, self._found = path, None\n",
        "tests/eventstore/test_store_file.py -k resolved_when_the_store_is_opened",
    ),
    "which-file": Protection(
        "a write looks whether the name is still that of the file that was opened",
        f"{SQLITE}/writing.py",
        "        self._file.check_contents()\n",
        "",
        "tests/eventstore/test_store_file.py -k not_the_file_that_was_opened",
    ),
    "committed-to-a-name": Protection(
        "a commit to a file that has lost its name acknowledges nothing",
        f"{SQLITE}/writing.py",
        "        self._file.check_committed()\n",
        "",
        "tests/eventstore/test_store_file.py -k removed_during_a_commit",
    ),
    "two-names": Protection(
        "a file with two names is not opened",
        f"{SQLITE}/store_file.py",
        "if status.st_nlink > 1 and",
        "if status.st_nlink > 99 and",
        "tests/eventstore/test_store_file.py -k with_a_second_name_is_not_opened",
    ),
    "mounted": Protection(
        "a file that is mounted alone is not opened",
        f"{SQLITE}/store_file.py",
        "        is_apart = _mount_of(file.descriptor) != _mount_of(folder)\n",
        "        is_apart = False\n",
        "tests/eventstore/test_store_file.py -k mounted_alone_is_not_opened",
    ),
    "removed-log": Protection(
        "a log that was removed is never written into the file",
        f"{SQLITE}/store_file.py",
        "                self._abandon(connection)\n                return\n",
        "                pass\n",
        "tests/eventstore/test_store_file.py -k whose_log_was_removed",
    ),
    "stale-log": Protection(
        "the log of a file that was replaced is not written into its successor",
        f"{SQLITE}/store_file.py",
        "self._had_log = _check_log(held)\n",
        "self._had_log = True\n",
        "tests/eventstore/test_store_file.py -k not_the_file_that_was_opened",
    ),
    "log-of-another": Protection(
        "… nor into another store",
        f"{SQLITE}/store_file.py",
        "check_undamaged(file.path) and has_log_of_another(file.path)",
        "check_undamaged(file.path) and False",
        "tests/eventstore/test_store_file.py -k killed_writer",
    ),
    "signed-log": Protection(
        "… since each log says whose it is",
        f"{SQLITE}/writing.py",
        '            connection.execute(SQL["sign_log"])\n',
        "",
        "tests/eventstore/test_store_file.py -k killed_writer",
    ),
    "signed-again": Protection(
        "… also one that begins again",
        f"{SQLITE}/recorder.py",
        "            self._writing.sign_again()\n",
        "",
        "tests/eventstore/test_store_file.py -k killed_writer",
    ),
    "moved-file": Protection(
        "no file is made beside the log of a file that was moved away",
        f"{SQLITE}/recorder.py",
        "            check_not_moved(self.path)\n",
        "            pass\n",
        "tests/eventstore/test_store_file.py -k beside_the_log_of_a_file_that_was_moved",
    ),
    "empty-log": Protection(
        "… and an empty one does not say that the file has a log",
        f"{SQLITE}/store_file.py",
        "        had_log, self._had_log = self._had_log, True\n",
        "        had_log = False\n",
        "tests/eventstore/test_store_file.py -k whatever_lies_beside",
    ),
    "overwritten": Protection(
        "a store that was overwritten in place is not written to",
        f"{SQLITE}/writing.py",
        "self._file.check_contents()",
        "self._file.check()",
        "tests/eventstore/test_store_file.py -k overwritten_in_place",
    ),
    "overwritten-closed": Protection(
        "the log of a store that was overwritten in place is not written into it when it is closed",
        f"{SQLITE}/store_file.py",
        "if self._has_lost_its_log() or self._was_overwritten():",
        "if self._has_lost_its_log():",
        "tests/eventstore/test_store_file.py -k overwritten_and_then_closed",
    ),
    "epoch": Protection(
        "a copy that is written to begins an epoch of positions",
        f"{SQLITE}/writing.py",
        "            epochs.begin_where_copied(connection, self._file.inode)\n",
        "            pass\n",
        "tests/eventstore/test_epochs.py -k misses_nothing",
    ),
    "copy-marked": Protection(
        "a backup is marked as a copy, also for when it gets the inode of its store",
        f"{SQLITE}/maintenance.py",
        "            mark_copy(target)\n",
        "            pass\n",
        "tests/eventstore/test_epochs.py -k misses_nothing",
    ),
    "ahead": Protection(
        "an audit database that knows lost events is refused",
        "foldlog/reports/audit_file.py",
        "    if lost_after is not None:\n",
        "    if False:\n",
        "tests/foldlog/test_audit_database.py -k knows_more",
    ),
    "scrub": Protection(
        "bytes in the unused parts of pages are overwritten before an erasure returns",
        f"{SQLITE}/erased_bytes/scrub.py",
        "            os.pwrite(self._file, bytes(end - first), at + first)\n",
        "            pass\n",
        "tests/eventstore/test_erased_bytes.py -k nothing_is_left",
    ),
    "pages-of-the-log": Protection(
        "pages that others wrote during the search are looked at again",
        f"{SQLITE}/erased_bytes/scrub.py",
        "{*found, *self._pages_of_the_log()}",
        "{*found}",
        "tests/eventstore/test_erased_bytes.py -k looked_at_again",
    ),
    "caches": Protection(
        "other connections drop the pages that were overwritten from their caches",
        f"{SQLITE}/erased_bytes/scrub.py",
        '                self._connection.execute("COMMIT")\n',
        '                self._connection.execute("ROLLBACK")\n',
        "tests/eventstore/test_erased_bytes.py -k cache_of_another_connection",
    ),
    "bytes-pending": Protection(
        "an erasure that was cut short leaves a mark, and vacuum completes it",
        "eventstore/maintenance/backup.py",
        "(*file.left_of_erased(), *stale)",
        "stale",
        "tests/eventstore/test_erased_bytes.py -k vacuum_completes",
    ),
    "search-erased-bytes": Protection(
        "erased texts leave the terms and the free pages of the search index",
        "foldlog/search/sqlite_tables.py",
        """            execute("INSERT INTO words (words) VALUES ('optimize')")
            execute("VACUUM")
""",
        "",
        "tests/foldlog/test_search.py -k not_a_byte",
    ),
    "search-late-batch": Protection(
        "texts that were read before an erasure are not added to the search index after it",
        "foldlog/search/hits.py",
        ' or removals != self.value("removals")',
        "",
        "tests/foldlog/test_search.py -k read_before_an_erasure and sqlite",
    ),
    "bytes-with-events": Protection(
        "bytes that stand beside an event are written in its transaction",
        f"{SQLITE}/transaction.py",
        "            if type(row.body) is Body:\n                self._attach(key, rows)\n",
        "",
        "tests/conformance/test_bytes.py -k retry_is_recognized and plain-sqlite",
    ),
    "bytes-once": Protection(
        "… the same bytes once in a conversation",
        f"{SQLITE}/transaction.py",
        "in attachments_of(row.body):\n                self",
        "in [(a + bytes([row.id]), b, c) for a, b, c in attachments_of(row.body)]:\n                self",
        "tests/conformance/test_bytes.py -k kept_once and plain-sqlite",
    ),
    "bytes-of-redacted": Protection(
        "… and go with the last event that has them",
        f"{SQLITE}/transaction.py",
        "        if detached:\n",
        "        if False:\n",
        "tests/conformance/test_bytes.py -k redaction_takes and plain-sqlite",
    ),
    "bytes-of-others": Protection(
        "… and not before",
        "eventstore/recorders/sql/sqlite/queries.sql",
        "DELETE FROM attachments WHERE conversation = ? AND NOT EXISTS (",
        "DELETE FROM attachments WHERE conversation = ? AND NOT NOT EXISTS (",
        "tests/conformance/test_bytes.py -k redaction_takes and plain-sqlite",
    ),
    "bytes-of-erased": Protection(
        "an erasure deletes them",
        f"{SQLITE}/transaction.py",
        'self._execute(SQL["delete_attachments"], (key, limit)).rowcount == limit',
        "False",
        "tests/conformance/test_bytes.py -k erasure_leaves and plain-sqlite",
    ),
    "redacted-bytes": Protection(
        "the bytes of a redacted event leave the files",
        "eventstore/maintenance/redact.py",
        "gone = complete and purge(",
        "gone = complete or purge(",
        "tests/eventstore/test_redaction.py -k random_stores",
    ),
    "redacted-keys": Protection(
        "… and so do the idempotency keys that stand for it",
        "eventstore/maintenance/redact.py",
        "        _hide_keys(writing, event)\n",
        "",
        "tests/conformance/test_redaction.py -k content_goes and plain-sqlite",
    ),
    "redacted-retry": Protection(
        "an append that is sent again after a redaction adds nothing",
        "eventstore/stored/read_transaction.py",
        "        if not recalled and self.found.redactions:\n",
        "        if False:\n",
        "tests/conformance/test_redaction.py -k retry_of_the_append and plain-sqlite",
    ),
    "redacted-copies": Protection(
        "… in a copy of the conversation too",
        "eventstore/maintenance/copy.py",
        "        writing.count_redactions(redacted)\n",
        "        pass\n",
        "tests/conformance/test_redaction.py -k carry_it and plain-sqlite-None",
    ),
    "redacted-source-id": Protection(
        "an event whose source sends it again after its redaction is known",
        "eventstore/maintenance/redact.py",
        "        writing.hide_key(source, RecalledKey(event.id, 1))",
        "        pass",
        "tests/conformance/test_redaction.py -k source_id and plain-sqlite",
    ),
    "redacted-view": Protection(
        "a View in memory is read again once an event of it was redacted",
        "projections/views.py",
        "if latest and latest.found.redactions == reading.found.redactions else None",
        "if latest else None",
        "tests/eventstore/test_redaction.py -k view_in_memory",
    ),
    "redacted-fork": Protection(
        "… that of a fork too",
        "eventstore/maintenance/redact.py",
        "        beside.count_redactions(sum(event_id < fork.begins for event_id in redacted))\n",
        "",
        "tests/eventstore/test_redaction.py -k view_in_memory",
    ),
    "redacted-old": Protection(
        "an event whose head needs its content is not redacted",
        "eventstore/maintenance/redact.py",
        "    if commitment is None:\n",
        "    commitment = commitment or b''\n    if False:\n",
        "tests/eventstore/test_redaction.py -k before_redaction",
    ),
    "redacted-document": Protection(
        "a document change that later ones build on is not redacted",
        "eventstore/maintenance/redact.py",
        "                _check_that_none_builds_on(reading, event)\n",
        "                pass\n",
        "tests/conformance/test_redaction.py -k document and plain-sqlite",
    ),
    "receipt-missing": Protection(
        "verify accepts a redacted event only with a receipt in the chain",
        "eventstore/maintenance/verify.py",
        "    for each in receipts.without_receipt():\n",
        "    for each in ():\n",
        "tests/eventstore/test_redaction.py -k looks_redacted",
    ),
    "receipt-of-another": Protection(
        "… that is for what was there",
        "eventstore/maintenance/redaction_receipts.py",
        "if event.redacted.hash != own:",
        "if False:",
        "tests/eventstore/test_redaction.py -k looks_redacted",
    ),
    "receipt-with-content": Protection(
        "… and without content",
        "eventstore/maintenance/redaction_receipts.py",
        "or without_content(event, event.redacted) != event",
        "",
        "tests/eventstore/test_redaction.py -k any_content",
    ),
    "receipt-content-back": Protection(
        "a content that was put back after its redaction is reported",
        "eventstore/maintenance/verify.py",
        "    for each in receipts.without_redaction():\n",
        "    for each in ():\n",
        "tests/eventstore/test_redaction.py -k put_back",
    ),
    "search-redacted": Protection(
        "a redacted text leaves the search index at once",
        "foldlog/search/index.py",
        "                self._remove_redacted(_followed(self._store, position))\n",
        "                pass\n",
        "tests/foldlog/test_redacting.py -k search_index",
    ),
    "audit-redacted": Protection(
        "… and an audit database when that is brought up to date",
        "foldlog/reports/audit_database.py",
        "            gone |= replace_redacted(store, database, rows)\n",
        "",
        "tests/foldlog/test_redacting.py -k audit",
    ),
    "search-removals": Protection(
        "an erasure names itself in the store, so that the search index removes the texts",
        "eventstore/maintenance/erase.py",
        '    transaction.set_value("removals", uuid4().hex)\n',
        "",
        "tests/foldlog/test_search.py -k found_no_more and sqlite",
    ),
    "search-once": Protection(
        "texts and position of the search index are written once, by the process that comes first",
        "foldlog/search/hits.py",
        "position <= present or after not in (None, present)",
        "False",
        "tests/foldlog/test_search.py -k at_the_same_time and sqlite",
    ),
    "calls": Protection(
        "all parallel calls are recorded before the first of them runs",
        "examples/agent_loop.py",
        "history.append_reply(reply)",
        "history.append(foldlog.from_openai(reply)[:1])",
        "tests/foldlog/test_interruption.py -k killed_between",
    ),
    "interrupted": Protection(
        "a call that others answered first is not interrupted",
        "projections/tool_results.py",
        "!= view.open_calls:",
        "is None:",
        "tests/foldlog/test_interruption.py -k answers_first",
    ),
}


def without(protection: Protection, project: Path, python: str = sys.executable) -> str | None:
    """What the test says without the protection; None where it passes."""
    path = project / protection.file
    whole = path.read_text()
    if protection.code not in whole:
        raise SystemExit(f"{protection.file} has no {protection.code!r} any more; mend this table")
    path.write_text(whole.replace(protection.code, protection.without))
    try:
        done = subprocess.run(
            [python, *_arguments(protection.test)],
            cwd=project,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
    except subprocess.TimeoutExpired:
        return "it never ended"
    finally:
        path.write_text(whole)
    return None if done.returncode == 0 else _said(done.stdout)


def _arguments(test: str) -> list[str]:
    if test.startswith("-m "):
        return test.split()
    file, _, chosen = test.partition(" -k ")
    return [
        "-m",
        "pytest",
        "-q",
        "-x",
        "-p",
        "no:cacheprovider",
        file,
        *(["-k", chosen] if chosen else []),
    ]


def _said(printed: str) -> str:
    """The line that tells most: a finding of ours, or what the assertion saw."""
    findings = re.findall(r"^(?:E +)?    (\S.*)$", printed, re.MULTILINE)
    asserted = re.findall(r"^E +(\S.*)$", printed, re.MULTILINE)
    ours = [line for line in findings if re.match(r"[a-z_]+, point \d|lost|half|twice|an append waited|own-", line)]
    said = (ours or asserted or printed.strip().splitlines()[-1:])[0]
    return re.sub(r"/\S*/(?=[^/\s]+\.db)", "", said)[:110]


def main(
    names: list[str],
    protections: Mapping[str, Protection] = PROTECTIONS,
    python: Callable[[str], str] = lambda test: sys.executable,
) -> int:
    useless = 0
    print("| protection | test | what it said without it |\n|---|---|---|")
    with tempfile.TemporaryDirectory(prefix="foldlog-protections-") as folder:
        project = Path(folder) / "project"
        skipped = shutil.ignore_patterns(
            ".git", ".venv", ".cache", "*.egg-info", "__pycache__", "results", ".*_cache", ".hypothesis"
        )
        shutil.copytree(ROOT, project, ignore=skipped)
        for name in names or protections:
            protection = protections[name]
            said = without(protection, project, python(protection.test))
            useless += said is None
            cell = "**nothing: it passed**" if said is None else f"`{said.replace('|', '¦').replace('`', chr(39))}`"
            print(f"| {protection.what} | `{protection.test}` | {cell} |", flush=True)
    return 1 if useless else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
