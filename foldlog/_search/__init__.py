"""Search the stored records and events.

searching.py   search without an index
"""
