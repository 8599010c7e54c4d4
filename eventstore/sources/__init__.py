"""Store the source of an import: the bytes of the imported file, in blocks, together with its
conversation.

``blocks``: blocks of a source, with the place and the hash of each record in a block.
``reading``: read a source, a few blocks in each transaction.
``moving``: copy a source, encrypt it again, and verify it.
``tables``: the rows of sources, blocks and places in one transaction. The rows are compressed, and
encrypted with the conversation's key.

Only ``foldlog._imports`` and the formats know the meaning of the records.
"""
