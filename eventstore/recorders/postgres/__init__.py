"""A store in one schema of a PostgreSQL database, for any number of machines: ``docs/POSTGRESQL.md``.

recorder    the seam: connections, and what is done once in a while
calls       the attempts of one call: how long they go on, and commits without an answer
sessions    a read transaction, and what followers wait for
writing     what may be written in one transaction
open_transaction  its begin, its commit, and what is sent when: an append takes two round trips
reading     the questions that one transaction answers
positions   where an event stands in the whole store, without anything that all writers meet at
wire        a connection on which statements are queued and sent together
columns     what a store keeps as columns of parameters and results
pool        a bounded number of connections
setup       the schema and its migrations; what a server must be set to, and epochs
status      what an operator asks
faults      the driver's errors in the words of the seam
"""

from foldlog.eventstore.recorders.postgres.recorder import PostgresRecorder

__all__ = ["PostgresRecorder"]
