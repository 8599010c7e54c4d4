"""Store the structure of Views beside the events, and load it again.

revision          the structure of a View after a structural event
revision_codec    the bytes of a revision: lists of ids, as JSON
loading           the View of a stored conversation, from its last revision
"""
