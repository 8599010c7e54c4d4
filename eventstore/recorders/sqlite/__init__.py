"""A store in one SQLite file, for any number of threads and processes.

    recorder      the seam: group commit, connections for readers, the end
    transaction   what may be written, under the one write lock that SQLite has; what the last
                  commit left, so that the
                  next need not ask
    reader        the questions that one transaction answers
    store_file    which file that is: nothing is written to another one; connections to it
    writing       the connection that writes, and what becomes of an exception in its transaction
    write_lock    the lock between processes
                  (docs/internals/decisions/0021-writers-wait-in-order.md)
    checkpoints   the log is written back beside commits
                  (docs/internals/decisions/0022-checkpoints-beside-commits.md)
    process_forks why connections are closed before one
    schema        whose file it is, and bringing it up to date
    maintenance   copy, rewrite and check the file as a whole, and positions in a copy of it;
                  replacing: make a
                  new file, and put it in the place of another
    errors        the driver's errors in the words of the seam
    memory        a store in memory: the same statements on a database without a file

Writers stand in a fair queue: within a process they share transactions (``CommitQueue``), and
between processes they wait for a lock on a file beside the database, which dies with its holder.
SQLite's own busy handler lets some wait for seconds, and gives up on them. Readers never wait: the
database is in WAL mode.

The writes of an append, and their measured cost:
docs/internals/decisions/0020-what-an-append-writes.md.
"""

from foldlog.eventstore.recorders.sqlite.recorder import SQLiteRecorder as SQLiteRecorder
