"""The stored records of imported conversations.

stored.py     finds the records of events, and the events of records
checking.py   compares the list of the events that records became with the events
decoding.py   decodes records into events that the store may not have yet
"""
