"""The page that shows one history: versions across, events down. ``foldlog report`` writes it into
one file, ``foldlog serve`` serves it live.

``document.py`` makes the page's document of a history, ``texts.py`` that of one event;
``assets.py`` puts the sources in ``app/`` together; ``report.py`` writes the file.
"""
