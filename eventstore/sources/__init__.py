"""Store the sources of imports: the bytes of a file, in blocks, beside the file's conversation.

blocks.py   about 128 kB of a source, with the place and the hash of each record in it
reading.py  read blocks, a few in each transaction
moving.py   copy, encrypt again, verify
tables.py   the rows of sources, blocks and places in one transaction; compressed, and encrypted
            with the conversation's key

Only ``foldlog._archive`` and the formats know the meaning of the records.
"""
