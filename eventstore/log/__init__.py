"""Read and write one conversation in one transaction.

row             from events to rows with ids, heads and checksums, and back
seal            the body of a row: compress, encrypt and checksum it; the mark of an encrypted
                conversation
keys            wrapping keys from the environment, and the data key of a conversation
reading, writing    a conversation in a transaction; inline projections; the attributes under which
                    the conversation is listed
finding         find a conversation by its id; read its events by pages; read all conversations at
                one moment
appending       the work of one append, and of several appends in one transaction; begin a fork
importing       write a history into one conversation in small transactions: compare, stage, publish
origins         the index of imported events by the id of their source
past            the past of a fork, shared or copied
redacted        the parts of an event that stay when its content is erased
following       the events of the whole store in the order of positions
ledger          entries for changes of a stored conversation, such as its erasure
results         the values that a store returns
database        conversations, transactions and keys, found through a recorder; the one cache of
                conversations
"""
