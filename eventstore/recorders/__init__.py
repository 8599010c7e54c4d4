"""A recorder stores rows in one kind of database. The packages of recorders never import one
another.

base, types, changes     the interface of a recorder, and the values that a recorder stores
errors                   the errors of a recorder
sqlite/, postgres/       the databases; a store in memory is a SQLite database too
sql/, statements         statements and numbered migrations as files, and how they are loaded
group_commit             one commit for the writes of several threads; a write inside a write is
                         refused
urls                     the URLs of stores
"""
