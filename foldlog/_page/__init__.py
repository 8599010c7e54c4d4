"""The page of one conversation. The picture on the page has a column for each version and a row for
each event. ``foldlog report`` writes the page into one file, ``foldlog serve`` serves it live.

``document.py`` makes the page's document of a history, and ``texts.py`` the document of one event.
``assets.py`` joins the sources in ``app/``, and ``report.py`` writes the file.
"""
