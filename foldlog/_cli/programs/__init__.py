"""Commands for the programs whose conversations are kept, and that ask about them.

setup.py doctor.py mcp.py hook.py secrets.py   one command each; quick_hook.py: the hook without what others need
stores.py                                      the store that coding agents write into
"""
