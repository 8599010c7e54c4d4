"""Lists of conversations.

pages          read pages of the list by attribute and by last activity
keeping_up     bring the stored list up to date
checking       compare the stored list with the events
tombstones     list the erased conversations
"""
