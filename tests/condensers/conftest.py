"""Warnings that litellm gives about itself: see ``tests/conftest.py``."""

LITELLMS_OWN_WARNINGS = (
    # It silences these two as it is imported; pytest's own filters come back after the test in
    # which that happened.
    r"ignore:.*using the `ReadOnly` qualifier:UserWarning",
    r"ignore:.*conflict with protected namespace:UserWarning",
    # It dumps a reply of the wrong type through its own pydantic models before it refuses it.
    r"ignore:Pydantic serializer warnings:UserWarning",
)
