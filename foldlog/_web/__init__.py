"""The page over a store while it is used: ``foldlog serve``. It writes no event; notes are beside
them.

``app.py`` has the paths, described in ``docs/PAGE.md``; ``access.py`` decides which requests are
answered. ``conversations.py`` are the rows of the list with sums over them, and ``choosing.py``
reads its search line. ``pages.py`` keeps the documents of open pages, and ``notes.py`` what their
readers note. ``metrics.py`` has the figures for Prometheus.
"""
