"""Reports that are made from a store and kept outside of it.

audit_database.py   a SQLite database of events, Views and condensations, for SQL and Datasette
audit_file.py       the file of that database: its tables, how it is made and opened
comparison.py       tables of several condensers; recall_curve.py: several sizes of each, as a plot
divergence.py       where two conversations that share a past diverge
dropped.py          what a condensation took out of a View, and what of it was needed again
replays.py          another condenser over a recorded history; needed.py: what the agent needed again
sent.py             which events of a View a model is sent; sizes.py: their tokens
as_sent.py          the View as a model was sent it, by the rules that the log has
stats.py            figures of conversations; spending.py prices.py: calls of models, and their cost
figures.py          the figures of one conversation; counts.py: of kinds, tools and days; overview.py: what it is about
stored_figures.py   a row of figures for each conversation, which lists, totals and the page read
source_figures.py   the figures of a source whose records are no events yet
unreadable.py       read on past events that cannot be read; own_ids.py: what a condensation of V0 forgets
kept.py             how values are kept beside conversations, so that only those that have changed are read
places.py           where the source of a conversation was written
runs.py             two conversations without a common past side by side
savings.py          tokens that condensations saved, and their cost
"""
