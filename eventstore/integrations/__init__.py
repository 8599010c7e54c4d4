"""The store under other libraries: the eventsourcing library on our recorders."""
