"""The figures of conversations. The store has a row for each conversation; SQL sorts lists and adds
up totals by these rows.

counting.py     count the figures of one conversation from its events, counted on from those of an
                earlier version
of_sources.py   the same of a source whose records are no events yet
counts.py       events by kind, tool and day, errors, waits; sizes.py: tokens of Views; savings.py:
                of condensations
context.py      how near the prompts came to the context limit
spending.py     calls of models, their tokens and cost; prices.py: by a table of prices
overview.py     title, format and times of a conversation; places.py: where its source was written
orders.py       what lists can be sorted by; activity.py: when conversations were last active
writing.py      write figures into the tables of the store; tables.py: ask them in SQL
updating.py     bring the tables up to date; repeated.py: find replies that several conversations
                have
stored.py       lists and totals; stats.py: the totals of some conversations, or of all
shown.py        documents and totals for commands, pages and Python
"""
