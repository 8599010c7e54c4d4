"""Reports that are made from a store and kept outside of it.

audit_database.py   a SQLite database of events, Views and condensations, for SQL and Datasette
audit_follow.py     keeps that database up to date, by the eventsourcing library's ``ProjectionRunner``
comparison.py       tables and a plot of several condensers over the same histories
"""
