"""The stored records of imported conversations.

stored.py     finds the records of events, and the events of records
decoding.py   decodes records into events that the store may not have yet
"""
