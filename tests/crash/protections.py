"""The protections of what was acknowledged, and of all that follows it: see
``tests.protections``.
"""

from __future__ import annotations

from tests.protections import Always, Argument, Gone, Instead, Never, Part, Protection

PROTECTIONS = {
    "not-a-store": Protection(
        "no file is made beside what is not a store",
        "eventstore:SQLiteRecorder._open",
        Instead("has_content _look", "look = None"),
        "tests/eventstore/test_sqlite.py -k no_database",
    ),
    "regular-file": Protection(
        "… and a pipe or a device is not one",
        "eventstore:StoreFile.has_content",
        Never("S_ISREG"),
        "tests/eventstore/test_sqlite.py -k regular_file",
    ),
    "half-erased": Protection(
        "an erasure that the disk ends says how far it came",
        "eventstore:unfinished",
        Gone("command"),
        "tests/foldlog/test_maintenance_commands.py -k rows_stay",
    ),
    "documents": Protection(
        "new values of documents are written in the transaction of their events",
        "eventstore:Documents.append",
        Instead(
            "change batch given",
            """if change is not None and given:
    self._store.append(
        conversation, given, expected_version=expected_version, idempotency_key=idempotency_key
    )
    given, expected_version, idempotency_key = [], ANY_VERSION, None
batch = given if change is None else [*given, change]""",
        ),
        "tests/crash/test_documents.py",
    ),
    "generation": Protection(
        "a writer of an erased conversation writes nothing into another one with its id",
        "eventstore:find_meant",
        Never("generation key"),
        "tests/conformance/test_generations.py -k planned_for_the_erased and memory",
    ),
    "meant": Protection(
        "a History reads and changes nothing of another conversation with the id of its own",
        "foldlog:BoundDatabase.find",
        Always("found key"),
        "tests/conformance/test_one_conversation.py -k no_method_works and memory",
    ),
    "transaction": Protection(
        "a batch is one transaction",
        "eventstore:SQLiteTransaction._insert",
        Instead(
            "range",
            """if len(rows) > 1:
    self._insert(key, rows[:1], position)
    self._execute("COMMIT")
    self._execute("BEGIN IMMEDIATE")
    rows, position = rows[1:], position + 1
for first in range(0, len(rows), _TOGETHER):""",
        ),
        "tests/crash/test_wal.py",
    ),
    "projection": Protection(
        "a revision is written in the transaction of its events",
        "eventstore:Store._project",
        Instead("project", "self._later = (projection, writing, events)"),
        "tests/crash/test_crashes.py -k killed_before_any_statement and append_batches",
    ),
    "dedupe": Protection(
        "an event that was left out of a batch sent again was stored, with its source id, in one"
        " transaction",
        "eventstore:Appending._append_besides",
        Gone("begins"),
        "tests/crash/test_crashes.py -k killed_before_any_statement and append_deduped",
    ),
    "full": Protection(
        "a commit is synced (`synchronous=FULL`)",
        "eventstore:StoreFile._prepare_to_write",
        Instead("NORMAL", 'connection.execute(f"PRAGMA synchronous = NORMAL")'),
        "tests/crash/test_crashes.py -k power_cut and append",
    ),
    "failed-commit": Protection(
        "a commit that fails is no success",
        "eventstore:SQLiteWriting.commit",
        Instead(
            "COMMIT connection",
            "exec(\"try: self.connection.execute('COMMIT')\\nexcept sqlite3.Error:"
            ' self.connection.rollback()")',
        ),
        "tests/crash/test_disk.py -k any_sync and append_batches",
    ),
    "log-after-failure": Protection(
        "after a commit that failed the log is begun again",
        "eventstore:SQLiteWriting.open",
        Instead("_in_doubt", "if False:"),
        "tests/crash/test_disk.py -k after_a_kill",
    ),
    "migration": Protection(
        "a migration is one transaction",
        "eventstore:migrate",
        Instead(
            "statement execute",
            """execute(statement)
execute("COMMIT")
execute("BEGIN IMMEDIATE")""",
        ),
        "tests/crash/test_crashes.py -k killed_before_any_statement and migrate",
    ),
    "log-begins-again": Protection(
        "a log that is always written, and written back beside the commits, begins again",
        "eventstore:LogCheckpoints._write_back",
        Always("written_back RESTART"),
        "tests/eventstore/test_checkpoints.py -k always_written",
    ),
    "log-in-commits": Protection(
        "where the thread that writes the log back fails, SQLite does it in a commit",
        "eventstore:SQLiteWriting.open",
        Instead("wal_autocheckpoint", 'connection.execute("PRAGMA wal_autocheckpoint = 0")'),
        "tests/eventstore/test_checkpoints.py -k no_thread",
    ),
    "log-keeps-up": Protection(
        "… and where it is late, writers wait for it",
        "eventstore:LogCheckpoints.look",
        Never("IN_COMMITS_AT"),
        "tests/eventstore/test_checkpoints.py -k does_not_keep_up",
    ),
    "log-and-erasure": Protection(
        "a vacuum waits for the thread that writes the log back",
        "eventstore:SQLiteRecorder._alone",
        Instead("beside_commits", "if True:"),
        "tests/eventstore/test_checkpoints.py -k vacuum_waits",
    ),
    "log-and-close": Protection(
        "a store that is closed waits for the thread that writes its log back",
        "eventstore:SQLiteRecorder.close",
        Gone("_checkpoints"),
        "tests/eventstore/test_checkpoints.py -k waits_for_its_checkpoint",
    ),
    "log-and-fork": Protection(
        "… and so does a fork",
        "eventstore:SQLiteRecorder.rest",
        Instead("_checkpoints", "rested = True  # first"),
        "tests/eventstore/test_checkpoints.py -k a_fork_waits",
    ),
    "schema": Protection(
        "each transaction looks whether the schema is still its own",
        "eventstore:check_unchanged",
        Never("user_version"),
        "tests/eventstore/test_sqlite.py -k errors_of_a_group",
    ),
    "staging": Protection(
        "a long import is staged, and seen when it is whole",
        "eventstore:StagedWriter._write",
        Instead(
            "end",
            """writing.end()
if not self._is_published:
    writing.publish(writing.version)
    self.there, self._is_published = writing.found, True""",
        ),
        "tests/crash/test_crashes.py -k killed_before_any_statement and ingest_staged",
    ),
    "left-over": Protection(
        "an import discards what killed ones left",
        "eventstore:StagedWriter.publish",
        Gone("discard_staged"),
        "tests/crash/test_crashes.py -k killed_before_any_statement and ingest_staged",
    ),
    "interrupted-import": Protection(
        "an import that Ctrl-C ends is discarded",
        "eventstore:StagedWriter.__exit__",
        Gone("delete_rows"),
        "tests/crash/test_processes.py -k ctrl_c_inside_an_import",
    ),
    "published": Protection(
        "what is published cannot be discarded",
        "eventstore:Transaction.delete",
        Never("visible"),
        "tests/conformance/test_recorders.py -k cannot_be_discarded",
    ),
    "version": Protection(
        "an expected version is checked in the transaction",
        "eventstore:check_version",
        Never("ANY_VERSION"),
        "tests/crash/test_crashes.py -k many_writers",
    ),
    "write-lock": Protection(
        "processes wait for a lock before they write",
        "eventstore:WriteLock.take",
        Gone("_AT_ONCE"),
        "-m tests.crash writers --seconds 5",
    ),
    "chunks": Protection(
        "an import works in small transactions",
        "eventstore:chunked",
        Never("CHUNK _CHUNK_BYTES"),
        "-m tests.crash writers --seconds 5",
    ),
    "forks-kept": Protection(
        "a conversation that forks read is not erased alone",
        "eventstore:_mark",
        Instead("living_forks", "forks = []"),
        "tests/conformance/test_forks.py -k not_erased_alone",
    ),
    "forks-finished": Protection(
        "an erasure with forks that was interrupted is finished when it is run again",
        "eventstore.maintenance.erase:_delete_rows",
        Part("operation"),
        "tests/conformance/test_forks.py -k interrupted_erasure",
    ),
    "forks-past": Protection(
        "a copy of a fork knows with which head its past begins",
        "eventstore:CopyWriter.__init__",
        Argument("seed"),
        "tests/conformance/test_forks.py -k copied_with_its_past",
    ),
    "fork": Protection(
        "connections are closed before a fork",
        "eventstore:SQLiteRecorder.__init__",
        Gone("process_forks"),
        "tests/crash/test_processes.py -k is_refused_the_file",
    ),
    "inherited": Protection(
        "a child that was forked in the middle of something is refused the file",
        "eventstore:SQLiteRecorder.renew_in_child",
        Gone("refuse"),
        "tests/crash/test_processes.py -k forked_while_the_store_is_read",
    ),
    "inherited-lock": Protection(
        "a child does not hold its parent's write lock",
        "eventstore:WriteLock.renew_in_child",
        Gone("close"),
        "tests/crash/test_processes.py -k does_not_keep_the_turn",
    ),
    "group": Protection(
        "a job that failed after it wrote is taken out of its group",
        "eventstore:CommitQueue._run_jobs",
        Never("wrote"),
        "tests/eventstore/test_sqlite.py -k takes_nothing_of_the_others",
    ),
    "leadership": Protection(
        "an interrupted leader lets the next thread lead",
        "eventstore:CommitQueue._leave",
        Never("leads"),
        "tests/eventstore/test_group_commit.py -k interrupted_leader",
    ),
    "committed": Protection(
        "what was committed when Ctrl-C came is not run again",
        "eventstore:SQLiteWriting.settle",
        Never("_COMMITTING"),
        "tests/eventstore/test_sqlite.py -k says_what_was_committed",
    ),
    "nested": Protection(
        "a write inside a write is refused",
        "eventstore:outside",
        Never("INSIDE"),
        "tests/conformance/test_foreign_code.py -k guard_that_appends and sqlite",
    ),
    "own-thread": Protection(
        "a job that calls other code runs in the thread of its caller",
        "eventstore:CommitQueue._collect",
        Instead("shares", "end = len(waiting)"),
        "tests/eventstore/test_group_commit.py -k leads_alone_and_keeps_its_place",
    ),
    "late": Protection(
        "what interrupts a thread that runs the job of another reaches the thread that it"
        " interrupted",
        "eventstore:CommitQueue._run_jobs",
        Never("leader"),
        "tests/eventstore/test_group_commit.py -k in_the_job_of_another",
    ),
    "note": Protection(
        "an exception that comes after the commit says that the events are written",
        "eventstore:CommitQueue._commit",
        Never("written"),
        "tests/eventstore/test_interruptions.py -k says_whether and not memory",
    ),
    "commit-stands": Protection(
        "an exception right after COMMIT does not make the group run again",
        "eventstore:SQLiteWriting.settle",
        Never("_COMMITTING"),
        "tests/eventstore/test_interruptions.py -k says_whether and not memory",
    ),
    "whose-error": Protection(
        "an error of another database inside a guard is the guard's",
        "eventstore:is_ours",
        Instead("_OF_RECORDERS", "return True"),
        "tests/conformance/test_foreign_code.py -k error_of_a_guard and sqlite",
    ),
    "patience": Protection(
        "a thread waits for others no longer than its patience",
        "eventstore:CommitQueue._wait",
        Argument("timeout"),
        "tests/eventstore/test_group_commit.py -k waits_too_long",
    ),
    "stopped": Protection(
        "a process waits for a stopped one no longer than its patience",
        "eventstore:WriteLock._wait",
        Instead("wait", "if not pending.wait(until + 1e6):"),
        "tests/eventstore/test_write_lock.py -k stopped_writer_is_named",
    ),
    "gave-up": Protection(
        "a lock that comes after its waiter gave up is released",
        "eventstore:_Pending.run",
        Never("_wanted"),
        "tests/eventstore/test_write_lock.py -k gave_up_is_released",
    ),
    "committed-in-memory": Protection(
        "an exception that comes right after a commit in memory says that the events are written",
        "eventstore:MemoryRecorder.transact",
        Gone("committed True"),
        "tests/eventstore/test_interruptions.py -k memory",
    ),
    "erased-since": Protection(
        "a conversation that is erased while it is read is not said to be damaged",
        "eventstore:find_again",
        Instead("begun find", "now = database.find(reader, found.id, pending=True) or found"),
        "tests/conformance/test_erased_while_read.py -k reading_on and sqlite",
    ),
    "erased-and-begun-again": Protection(
        "… nor where another conversation has its id now",
        "eventstore:find_again",
        Never("found"),
        "tests/conformance/test_erased_while_read.py -k another_conversation and sqlite",
    ),
    "erased-verify": Protection(
        "… nor while it is verified",
        "eventstore:_verdict",
        Never("findings erasure attempts"),
        "tests/conformance/test_erased_while_read.py -k verifying and sqlite",
    ),
    "clock": Protection(
        "a moment that the store could not read again is not acknowledged",
        "eventstore.arguments:moment",
        Never("microseconds"),
        "tests/conformance/test_arguments.py -k clock and sqlite",
    ),
    "one-moment": Protection(
        "a reader sees one moment",
        "eventstore:ReadConnection.__enter__",
        Gone("execute"),
        "tests/eventstore/test_sqlite.py -k sees_one_moment",
    ),
    "verified": Protection(
        "a backup is verified",
        "eventstore:back_up",
        Instead("verify Store", "made = list(verify(Store(copy, database.settings)))[:0]"),
        "tests/foldlog/test_maintenance_commands.py -k damage_in_it_is",
    ),
    "stale": Protection(
        "an import that lives is not taken for dead",
        "eventstore.maintenance.backup:_finish",
        Instead("_STALE_US", "stale = _stale(recorder, database.now())"),
        "tests/eventstore/test_maintenance.py -k spares_those_that_live",
    ),
    "others": Protection(
        "what a process knows of its last append counts only while nobody else has committed",
        "eventstore:SQLiteWriting.begin",
        Never("_begun_at own"),
        "tests/crash/test_crashes.py -k many_writers",
    ),
    "in-progress": Protection(
        "a View goes on with what was appended, and not with what a transaction in progress has"
        " inserted",
        "eventstore:SQLiteWriting.begin",
        Instead("own _own_header", "own = self._own_header"),
        "tests/eventstore/test_sqlite.py -k not_committed_is_not_told",
    ),
    "not-ours": Protection(
        "a program without our write lock that commits right after our commit is noticed",
        "eventstore:SQLiteWriting.commit",
        Always("_header wrote"),
        "tests/projections/test_grown_views.py -k not_ours",
    ),
    "others-since": Protection(
        "a View goes on with what this process appended only while nobody else has committed",
        "eventstore:SQLiteWriting.left",
        Instead("header left", "return left"),
        "tests/projections/test_grown_views.py -k others_appended",
    ),
    "rows-taken-back": Protection(
        "rows of a transaction that was rolled back come into no View",
        "eventstore:Left.rows_since",
        Never("head earlier"),
        "tests/projections/test_grown_views.py -k rolled_back",
    ),
    "taken-back": Protection(
        "what was rolled back is forgotten",
        "eventstore:SQLiteWriting.begin",
        Gone("forget"),
        "tests/eventstore/test_sqlite.py -k rolled_back_is_forgotten",
    ),
    "mode": Protection(
        "the file is its owner's alone from its first moment",
        "eventstore:StoreFile.make",
        Instead(
            "O_RDWR", "os.close(os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o644))"
        ),
        "tests/eventstore/test_sqlite.py -k owners_alone",
    ),
    "one-name": Protection(
        "a relative name is resolved once, when the store is opened",
        "eventstore:StoreFile.__init__",
        Instead("realpath", "self.path = path"),
        "tests/eventstore/test_store_file.py -k resolved_when_the_store_is_opened",
    ),
    "which-file": Protection(
        "a write looks whether the name is still that of the file that was opened",
        "eventstore:StoreFile.check",
        Instead("st_nlink found", "found = self._opened"),
        "tests/eventstore/test_store_file.py -k not_the_file_that_was_opened",
    ),
    "two-names": Protection(
        "a file with two names is not opened",
        "eventstore:StoreFile.check",
        Instead("st_nlink found", "found = status.st_ino, status.st_dev, 1"),
        "tests/eventstore/test_store_file.py -k with_a_second_name_is_not_opened",
    ),
    "moved-file": Protection(
        "no file is made beside the log of a file that was moved away",
        "eventstore:check_not_moved",
        Never("there size"),
        "tests/eventstore/test_store_file.py -k beside_the_log_of_a_file_that_was_moved",
    ),
    "epoch": Protection(
        "a copy that is written to begins an epoch of positions",
        "eventstore:SQLiteWriting.begin",
        Instead("begin_epoch_where_copied", "last = None"),
        "tests/eventstore/test_epochs.py -k misses_nothing",
    ),
    "copy-marked": Protection(
        "a backup is marked as a copy, also for when it gets the inode of its store",
        "eventstore:copy",
        Gone("_A_COPY"),
        "tests/eventstore/test_epochs.py -k misses_nothing",
    ),
    "ahead": Protection(
        "an audit database that knows lost events is made again",
        "foldlog:AuditTables.__init__",
        Never("last_position"),
        "tests/foldlog/test_audit_database.py -k knows_more",
    ),
    "bytes-pending": Protection(
        "an erasure that was cut short leaves a mark, and vacuum completes it",
        "eventstore.maintenance.backup:_finish",
        Gone("finish"),
        "tests/eventstore/test_erasure.py -k vacuum_completes",
    ),
    "bytes-with-events": Protection(
        "bytes that stand beside an event are written in its transaction",
        "eventstore:SQLiteTransaction._insert",
        Never("Body"),
        "tests/conformance/test_bytes.py -k retry_is_recognized and plain-sqlite",
    ),
    "bytes-once": Protection(
        "… the same bytes once in a conversation",
        "eventstore:Transaction._attach",
        Instead(
            "attachments_of",
            "for name, encoding, body in [(a + bytes([row.id]), b, c) for a, b, c in"
            " attachments_of(row.body)]:",
        ),
        "tests/conformance/test_bytes.py -k kept_once and plain-sqlite",
    ),
    "bytes-of-redacted": Protection(
        "… and go with the last event that has them",
        "eventstore.recorders.base:Transaction.replace_rows",
        Gone("delete_unattached"),
        "tests/conformance/test_bytes.py -k redaction_takes and plain-sqlite",
    ),
    "bytes-of-erased": Protection(
        "an erasure deletes them",
        "eventstore:Transaction._delete_all",
        Instead(
            "delete_attachments",
            'if not self._delete("delete_rows", key, limit):\n    return False',
        ),
        "tests/conformance/test_bytes.py -k erasure_leaves and plain-sqlite",
    ),
    "redacted-keys": Protection(
        "… and nobody reads the idempotency keys that stand for it",
        "eventstore:stored_key",
        Instead("urlsafe_b64encode", "return idempotency_key"),
        "tests/conformance/test_redaction.py -k content_goes and plain-sqlite",
    ),
    "redacted-copies": Protection(
        "… in a copy of the conversation too",
        "eventstore:_write_beside",
        Gone("count_redactions"),
        "tests/conformance/test_redaction.py -k carry_it and plain-sqlite",
    ),
    "redacted-source-id": Protection(
        "an event whose source sends it again after its redaction is known",
        "eventstore:_leave_nothing_beside",
        Gone("RecalledKey"),
        "tests/conformance/test_redaction.py -k source_id and plain-sqlite",
    ),
    "redacted-view": Protection(
        "a View in memory is read again once an event of it was redacted",
        "projections:Views._latest_of",
        Part("redactions"),
        "tests/eventstore/test_redaction.py -k view_in_memory",
    ),
    "redacted-fork": Protection(
        "… that of a fork too",
        "eventstore:redact_rows",
        Gone("count_redactions"),
        "tests/eventstore/test_redaction.py -k view_in_memory",
    ),
    "redacted-document": Protection(
        "a document change that later ones build on is not redacted",
        "eventstore:_erase_content",
        Gone("_check_that_none_builds_on"),
        "tests/conformance/test_redaction.py -k document and plain-sqlite",
    ),
    "receipt-missing": Protection(
        "verify accepts a redacted event only with a receipt in the chain",
        "eventstore:Check._match_receipts",
        Instead("_without_receipt", "for each in ():"),
        "tests/eventstore/test_redaction.py -k looks_redacted",
    ),
    "receipt-of-another": Protection(
        "… that is for what was there",
        "eventstore:Check._note_redaction",
        Never("own"),
        "tests/eventstore/test_redaction.py -k looks_redacted",
    ),
    "receipt-with-content": Protection(
        "… and without content",
        "eventstore:Check._note_redaction",
        Part("without_content"),
        "tests/eventstore/test_redaction.py -k any_content",
    ),
    "receipt-content-back": Protection(
        "a content that was put back after its redaction is reported",
        "eventstore:Check._match_receipts",
        Instead("_receipts _redacted", "for each in ():"),
        "tests/eventstore/test_redaction.py -k put_back",
    ),
    "audit-redacted": Protection(
        "a redacted text leaves an audit database when that is brought up to date",
        "foldlog:removals_of",
        Gone("frozenset"),
        "tests/foldlog/test_audit_follow.py -k redacted_content and sqlite",
    ),
    "audit-erased": Protection(
        "an erasure is entered in the ledger, so that an audit database removes the texts",
        "eventstore:enter_erasure",
        Gone("enter erased"),
        "tests/ledger/test_derived.py -k use_the_id_again and plain",
    ),
    "calls": Protection(
        "all parallel calls are recorded before the first of them runs",
        "examples:run_agent",
        Instead("append_reply", "recorded = history.append(foldlog.from_openai(reply)[:1])"),
        "tests/foldlog/test_interruption.py -k killed_in_a_call",
    ),
    "interrupted": Protection(
        "a call that others answered first is not interrupted",
        "projections:check_still_open",
        Instead("open_calls", "if view.then(reading.events(view.version)).open_calls is None:"),
        "tests/foldlog/test_interruption.py -k answers_first",
    ),
    "keys": Protection(
        "the number of a conversation is not given twice",
        "sqlite/0001_first.sql:conversations",
        Instead("AUTOINCREMENT", "    key            INTEGER PRIMARY KEY,"),
        "tests/conformance/test_recorders.py -k takes_nothing_more",
    ),
    "bytes-of-others": Protection(
        "bytes are kept as long as an event has them",
        "sqlite/queries.sql:delete_unattached",
        Instead("DELETE", "DELETE FROM attachments WHERE conversation = ? AND NOT NOT EXISTS ("),
        "tests/conformance/test_bytes.py -k redaction_takes and plain-sqlite",
    ),
}
