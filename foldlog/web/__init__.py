"""The page over a store while it is used: ``foldlog serve``. Everything here only reads.

``app.py`` are the paths, described in ``docs/PAGE.md``; ``access.py`` says who may ask; ``conversations.py`` are the
columns of the list and the figures over all conversations; ``pages.py`` keeps what the page of a conversation is told;
``search.py`` searches.
"""
