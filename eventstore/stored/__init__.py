"""An event as a row.

rows          from events to rows with ids, heads and checksums; checks of what was read
row_codec     a row's body: compress, encrypt, checksum, and back; compression is its package
transaction   one conversation in a read or a write transaction; inline projections; results: what a store returns
database      conversations, transactions and keys, found through a recorder
hash_chain    heads and checksums; marks vouch for an encrypted conversation as a whole
keys          wrapping keys from the environment, and the data key of a conversation
"""
