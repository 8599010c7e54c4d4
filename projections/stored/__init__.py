"""Views as they are stored beside the events.

revision          the structure of a View after a structural event; returning: after a retraction
revision_codec    its bytes: a full copy, or a delta against one
loading           the View of a stored conversation, from its last revision
tracing           what became of a forgotten event, as the revisions tell it
tail, unread      the last events of a View alone; a View that is loaded when it is used
"""
