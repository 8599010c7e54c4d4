"""The steps of a write, each decided in the transaction that makes it.

appending     the work of an append
together      several of them in as few transactions as possible
importing     one foreign history into one conversation: compare, stage, publish
after_receipts  the ids of that history where receipts of redactions stand between its events
origins       leave out imported events that are there: the index by the id of their source
forking       a conversation that shares the past of another
generation  use the id of an erased conversation again
"""
