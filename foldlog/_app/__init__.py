"""What people look at. Programs import nothing from here: ``foldlog`` has their names.

cli/             the command
page/            the page of one run, and the list of runs
server/          ``foldlog serve``: the pages, and the service for other languages
coding_agents/   hooks and tools for coding agents, and their settings
sample/          the history of ``foldlog demo``
"""
