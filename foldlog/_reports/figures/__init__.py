"""The figures of conversations. The store has a row of figures for each conversation. Lists and
totals are queries over the rows of figures.

counting.py       count the figures of one conversation from its events, and update earlier figures
of_sources.py     count the figures of a source from its records, before its events are made
counts.py         events by kind, tool and day, errors, waits; savings.py: savings of condensations
tokens.py         the tokens of an event and of a View; view_tokens.py: the tokens of the View at
                  each version, stored so that only new events are counted; short_events.py: the
                  events of a View without their long contents
context_limit.py  how near the prompts came to the context limit
spending.py       calls of models, their tokens and cost; prices.py: the table of prices
overview.py       title, format and times of a conversation; source_places.py: where its source was
                  written
search_line.py    read the filters of a search line, such as has:error
sort_keys.py      the figures by which lists are sorted; activity.py: the times of last activity
writing.py        write figures into the tables of the store; tables.py: read them by SQL
blocks.py         totals of a whole store, from sums of blocks of conversations
keeping_up.py     bring the tables up to date; repeated_replies.py: find replies that are in several
                  conversations; tools_of_replies.py: their calls of tools; settled_replies.py:
                  replies that a growth need not decode; reading_ahead.py, reading_together.py:
                  fewer round trips to a server
agent_trees.py    which conversation began which; tasks.py: figures of conversations with sub-agents
checking.py       compare the stored figures with figures that are counted again
unchanged.py      write figures only if their conversation has not changed since it was read
of_store.py       lists and totals of a store; stats.py: the totals of some conversations, or of all
documents.py      documents and totals for commands, pages and Python
"""
