"""Values that are computed from a store, and can be deleted and made again.

cached_values.py   values that are cached beside conversations
"""
