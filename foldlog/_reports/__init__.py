"""The reports about a store.

audit_database.py   a SQLite database of events, Views and condensations, for SQL and Datasette
audit_file.py       makes, opens and checks the file of that database
comparison.py       tables of several condensers; recall_curve.py: several sizes of each, as a plot
divergence.py       where two conversations that share events diverge
dropped.py          what a condensation took out of a View, and what was needed again;
                    needed_again.py: the same for the newest condensations
replays.py          another condenser over a recorded history; recall_score.py: what the agent
                    needed again
as_sent.py          the View as it was sent to a model; sent.py: which events were sent
own_ids.py          translates the ids in a condensation of V0
runs.py             two conversations that share no events side by side; passages.py: words that
                    differ
"""
