"""A store in one schema of a PostgreSQL database, for any number of machines.
``docs/POSTGRESQL.md`` is the manual of stores on PostgreSQL.

``recorder``: the interface of a recorder, its connections, and rare tasks.
``writing``: the writes of one transaction.
``open_transaction``: begin, commit and repeat a transaction. It decides when statements are sent,
so that most appends take one or two round trips.
``assumptions``: what the last transactions read, so that a chunk of a reply takes one round trip.
``reading``: the queries of one transaction, and a follower's wait for the standby.
``positions``: the position of an event in the whole store, without a lock that all writers share.
``wire``: a bounded number of connections, which send queued statements together in binary form.
``refusals``: why a server refuses a connection, by codes, in any language.
``setup``: the schema, its migrations, the required settings of a server, and epochs.
``status``: the state of a store, for its operator.
``checking``: what is wrong in the database, for ``verify``.
``deleted_rows``: VACUUM, and the proof that it removed the rows of an erasure.
``stores``: many stores behind one address.
``shared_transactions``: one transaction for several appends of one process to one conversation.
"""

from foldlog.eventstore.recorders.postgres.recorder import PostgresRecorder as PostgresRecorder
from foldlog.eventstore.recorders.postgres.stores import Stores as Stores
