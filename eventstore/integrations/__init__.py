"""The store as the database of the eventsourcing library: its applications and projections, on our
recorders.
"""
