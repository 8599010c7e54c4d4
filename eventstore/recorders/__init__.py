"""Recorders: siblings that keep rows in one kind of database each, and never import one another."""
