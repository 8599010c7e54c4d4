"""The store as the database of the eventsourcing library: the library's applications and
projections run on our recorders.
"""
