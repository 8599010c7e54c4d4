"""Recorders keep rows in one kind of database each. They never import one another.

base, types, changes     the contract of a recorder, and the values that it keeps and gets; errors
                         are its errors
sqlite/, postgres/       the databases; sqlite/ is that of a store in memory too
sql/, statements         statements and numbered migrations as files, and how they are loaded
group_commit             one commit for the writes of several threads; a write inside a write is
                         refused
urls                     where a store is, as a URL
"""
