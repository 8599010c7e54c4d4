"""Use a foldlog store as the database of the eventsourcing library. Applications and projections of
the eventsourcing library run on foldlog's recorders.
"""
