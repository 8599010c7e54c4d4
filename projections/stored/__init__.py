"""Views as they are stored beside the events.

revision          the structure of a View after a structural event
revision_codec    the bytes of a revision: lists of ids, as JSON
loading           the View of a stored conversation, from its last revision
"""
