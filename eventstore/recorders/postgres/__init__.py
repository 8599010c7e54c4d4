"""A store in one schema of a PostgreSQL database, for any number of machines.
``docs/POSTGRESQL.md`` is the manual of stores on PostgreSQL.

recorder          the interface of a recorder: connections, and rare tasks
writing           the writes of one transaction
open_transaction  begin and commit of a transaction; when statements are sent (an append takes two
                  round trips); the attempts of a call, and commits without an answer
reading           the queries of one transaction; a read transaction, and its wait for followers
positions         the position of an event in the whole store, without a lock for all writers
wire              a bounded number of connections; statements are queued and sent together; errors
                  of the driver become errors of a recorder; parameters in binary form
setup             the schema and its migrations; the required settings of a server, and epochs
status            the state of a store, for its operator
stores            many stores behind one address
sharing           appends of one process to one conversation, in one transaction
"""

from foldlog.eventstore.recorders.postgres.recorder import PostgresRecorder as PostgresRecorder
from foldlog.eventstore.recorders.postgres.stores import Stores as Stores
