"""The pages of a file and its log, parsed without SQLite.

pages     the pages, their rows and their order
"""
