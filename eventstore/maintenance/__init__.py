"""The tasks of a store's administrator.

``verify``: check heads, checksums and indices, and name damaged events.
``copy``: copy conversations between stores, and compare their heads.
``erase``: remove a conversation and leave a tombstone. Forks are erased too, or get copies of the
shared events.
``redact``: erase the content of one event.
``rekey``, ``rekey_steps``: encrypt and compress stored conversations with the current settings.
``archive``, ``archive_objects``: move old events to an object store, and restore them.
``time_order``: find conversations whose times contradict the order of the store.
``unfinished``: finish interrupted operations that need several transactions.
``backup``: copy a store to a file, replace a store by a backup, and vacuum a store.
``followers``: report which followers and read models lag.
"""
