"""Views as they are stored beside the events.

revision          the structure of a View after a structural event
revision_codec    its bytes: a full copy, or a delta against one
loading           the View of a stored conversation, from its last revision
appended          what this process appended to conversations whose Views are in memory
tail, unread      the last events of a View alone; a View that is loaded when it is used
"""
