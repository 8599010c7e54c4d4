"""A store in one SQLite file, for any number of threads and processes.

``recorder``: the interface of a recorder, with group commit, connections for readers, and closing.
``transaction``: the writes of a transaction under SQLite's one write lock. The transaction object
remembers state for the next transaction.
``reader``: the queries of one transaction.
``store_file``: connections to the file, and a check that no other file has taken its name.
``writing``: the connection that writes, and the handling of exceptions in its transaction.
``group_commit``: one commit for the writes of several threads.
``stream_commits``: tells other processes which commits wrote nothing but streams.
``write_lock``: the lock between processes
(docs/internals/decisions/0021-writers-wait-in-order.md).
``log_checkpoints``: a thread that writes the log back into the file between commits
(docs/internals/decisions/0022-checkpoints-beside-commits.md).
``log_syncs``: a thread that syncs the log after commits that did not wait for the disk.
``process_forks``: closes connections before a process forks.
``schema``: checks that the file is a store, and migrates its schema.
``rewriting``: copy and rewrite the whole file, and begin new positions in a copy of the file.
``checking``: what is wrong in the database, for ``verify``.
``replacing``: make a new file, and replace another file by it.
``errors``: turns the driver's errors into errors of a recorder.
``memory``: a store in memory, which runs the same statements on a database without a file.

Writers wait in a fair queue. The threads of a process share transactions (``CommitQueue``).
Processes wait for a lock on a file beside the database, and the lock ends when its process ends. If
processes used SQLite's own busy handler, some writers would wait for seconds and then fail. Readers
never wait, because the database is in WAL mode.

docs/internals/decisions/0020-what-an-append-writes.md lists the writes of an append, with their
measured cost.
"""

from foldlog.eventstore.recorders.sqlite.recorder import SQLiteRecorder as SQLiteRecorder
