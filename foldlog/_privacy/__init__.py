"""Find and remove what must not stay in a store.

erasing.py     whole conversations
redacting.py   events, and everything in the store that repeats their content
matching.py    a text in everything that a conversation stores
"""
