"""The stored records of imported conversations.

stored.py            finds the records of events, and the events of records
compared_imports.py  compares the events that records became with the records
compared_exports.py  compares the document that an export writes with the records
decoding.py          decodes records into events that the store may not have yet
"""
