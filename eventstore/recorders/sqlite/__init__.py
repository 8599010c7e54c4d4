"""A store in one SQLite file, for any number of threads and processes.

    recorder      the interface of a recorder: group commit, connections for readers, closing
    transaction   the writes of a transaction, under the one write lock that SQLite has; what it
                  remembers, so that the next transaction need not read it
    reader        the queries of one transaction
    store_file    the file: connections to it, and a check that no other file has its name
    writing       the connection that writes, and what follows an exception in its transaction
    write_lock    the lock between processes
                  (docs/internals/decisions/0021-writers-wait-in-order.md)
    checkpoints   the log is written back beside commits
                  (docs/internals/decisions/0022-checkpoints-beside-commits.md)
    process_forks why connections are closed before a process forks
    schema        check that the file is a store, and migrate its schema
    maintenance   copy, rewrite and check the file as a whole, and positions in a copy of it
    replacing     make a new file, and put it in the place of another
    errors        the driver's errors become errors of a recorder
    memory        a store in memory: the same statements on a database without a file

Writers stand in a fair queue: within a process they share transactions (``CommitQueue``), and
between processes they wait for a lock on a file beside the database, which dies with its holder.
SQLite's own busy handler would let some writers wait for seconds, and then fail. Readers never
wait: the database is in WAL mode.

The writes of an append, and their measured cost:
docs/internals/decisions/0020-what-an-append-writes.md.
"""

from foldlog.eventstore.recorders.sqlite.recorder import SQLiteRecorder as SQLiteRecorder
