"""Tables and values that are computed from a store, and can be deleted and made again.

tables.py          tables that follow a store
follower.py        updates such tables in a thread of its own
cached_values.py   values that are cached beside conversations
reading_together.py  several conversations in one transaction, with few round trips to a server
"""
