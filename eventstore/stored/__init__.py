"""An event as a row.

rows          from events to rows with ids, heads and checksums, and back
row_codec     a row's body: compress, encrypt, checksum, and back; compression is its package
read_transaction, write_transaction    one conversation in a transaction; inline projections
staging       conversations that are invisible until they are published; rows deleted in small transactions
pages         the events of a conversation, page by page
moment        all conversations in a transaction
results       the values that a store returns
database      conversations, transactions and keys, found through a recorder
known         the one cache of conversations; observers of appends
hash_chain    heads and checksums, by crc; marks vouch for an encrypted conversation as a whole
past          the names and salts of a fork's copied events
redacted      what stays of an event whose content was erased
keys          wrapping keys from the environment, and the data key of a conversation
"""
