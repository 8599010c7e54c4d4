"""A recorder stores rows in one kind of database. The packages of recorders never import one
another.

``base``, ``types``: the interface of a recorder, and the values that it stores.
``errors``: the errors of a recorder.
``sqlite/``, ``postgres/``: the recorders. A store in memory is a SQLite database too.
``sqlite/sql/``, ``postgres/sql/``: their statements and numbered migrations.
``statements``: load these files.
``checking``: the texts of what ``verify`` finds in a database.
``urls``: the URLs of stores.
``versions``: the version of foldlog that made a store, and stores of other versions.
``writers``: the threads that are inside a write. A nested write is refused.
"""
