"""The page over a store while it is used: ``foldlog serve``. Everything here only reads.

``app.py`` has the paths, described in ``docs/PAGE.md``; ``access.py`` decides which requests are answered;
``conversations.py`` are the columns of the list and the figures over all conversations; ``pages.py`` keeps the
documents of open pages; ``metrics.py`` has the figures for Prometheus.
"""
