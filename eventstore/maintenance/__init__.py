"""The tasks of an administrator.

verify                                   check heads, checksums and indices; name what is damaged
copy                                     copy conversations between stores, and compare their heads
erase                                    remove a conversation, and leave a tombstone; give its
                                         forks copies
redact                                   erase the content of one event
rekey, rekey_steps                       re-encrypt and re-compress with the current settings, a
                                         conversation at a time
archive, archived                        move old events to an object store, and restore them
unfinished                               finish first what operations of several transactions left
backup                                   copy a file, put a backup in its place, vacuum
status                                   who holds followers back, and which read models have
                                         confirmed
"""
