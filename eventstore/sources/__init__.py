"""The sources of imports as they are stored: the bytes of a file, in blocks, beside its
conversation.

blocks.py   some 128 kB of a source, with the place and the hash of each record in it; pure
reading.py  read blocks, some in each transaction
moving.py   copy, seal again, verify
tables.py   the rows of sources, blocks and places in one transaction; deflated, and sealed with the
            conversation's key

Only ``foldlog._archive`` and the formats know what the records mean.
"""
