"""Remove erased bytes from the file.

scrub        searches the whole file for b-tree pages and overwrites their unused parts
page_space   says which parts of a page these are
"""
