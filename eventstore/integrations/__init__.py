"""The store as the database of other libraries.

eventsourcing    applications and projections of the eventsourcing library on our recorders: what users name
recorders        its recorders of events and snapshots, and its subscriptions; tracking: the view of a projection
batches          its subscriptions, a page of events at a time
"""
