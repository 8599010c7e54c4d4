"""One conversation in one transaction.

row             from events to rows with ids, heads and checksums, and back
seal            the body of a row: compress, encrypt, checksum, and back; the mark of an encrypted
                conversation
keys            wrapping keys from the environment, and the data key of a conversation
reading, writing    a conversation in a transaction; inline projections; the attributes under which
                    it is listed
finding         which conversation is meant; its events page by page; all conversations at one
                moment
appending       the work of an append, of one or of several in one transaction; begin a fork
importing       write a history into one conversation: compare, stage, publish, in small
                transactions
origins         the index of imported events by the id of their source
past            the past of a fork, shared or copied
redacted        the parts of an event that stay when its content is erased
following       the whole store in the order of positions
ledger          what changed a conversation after the fact, as entries in that order
results         the values that a store returns
database        conversations, transactions and keys, found through a recorder; the one cache of
                conversations
"""
