"""The store as the database of other libraries.

eventsourcing    applications and projections of the eventsourcing library on our recorders: what users name
recorders        its recorders of events, its subscriptions, and the base of a projection's view
batches          its subscriptions, a page of events at a time
"""
