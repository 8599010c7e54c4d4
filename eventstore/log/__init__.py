"""Read and write one conversation in one transaction.

row             convert events to rows with ids, heads and checksums, and back
seal            compress, encrypt and checksum the body of a row; make and check the mark of an
                encrypted conversation
keys            find the wrapping keys, and encrypt the data key of a conversation
reading         read one conversation in a transaction
writing         write one conversation in a transaction; call inline projections; list the
                conversation under its attributes
finding         find one conversation by its id, or read all conversations at one moment
appending       append to one or several conversations in one transaction; begin a fork
streams         write texts beside the log, such as the reply that a model is writing
importing       import a history into one conversation in small transactions
origins         find imported events by the id of their source
past            find the events that a fork shares with its ancestors
redacted        make the event that remains after a redaction
following       read the events of the whole store in the order of positions
ledger          write entries for changes of a stored conversation, such as its erasure
results         the values that a store returns
database        find conversations and their keys through a recorder; cache one conversation
"""
