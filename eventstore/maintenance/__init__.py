"""The tasks of a store's administrator.

verify                                   check heads, checksums and indices; name damaged events
copy                                     copy conversations between stores, and compare their heads
erase                                    remove a conversation, and leave a tombstone; give its
                                         forks copies of the shared events
redact                                   erase the content of one event
rekey, rekey_steps                       encrypt and compress again with the current settings, one
                                         conversation at a time
archive, archived                        move old events to an object store, and restore them
unfinished                               finish operations of several transactions that were
                                         interrupted
backup                                   copy a file, put a backup in its place, vacuum
status                                   which readers and read models lag behind
"""
