"""A store in one schema of a PostgreSQL database, for any number of machines:
``docs/POSTGRESQL.md``.

recorder    the seam: connections, and what is done once in a while
writing     what may be written in one transaction
open_transaction  its begin, its commit, and what is sent when: an append takes two round trips; the
                  attempts of a call,
            and commits without an answer
reading     the questions that one transaction answers; a read transaction, and what followers wait
            for
positions   where an event stands in the whole store, without anything that all writers meet at
wire        a bounded number of connections, on which statements are queued and sent together; the
            driver's errors in
            the words of the seam; parameters in binary form
setup       the schema and its migrations; what a server must be set to, and epochs
status      what an operator asks
stores      many stores behind one address
sharing     appends of one process to one conversation, in one transaction
"""

from foldlog.eventstore.recorders.postgres.recorder import PostgresRecorder as PostgresRecorder
from foldlog.eventstore.recorders.postgres.stores import Stores as Stores
