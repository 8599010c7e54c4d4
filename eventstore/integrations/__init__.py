"""The store under other libraries.

eventsourcing    applications and projections of the eventsourcing library on our recorders
batches          its subscriptions, a page of events at a time
"""
