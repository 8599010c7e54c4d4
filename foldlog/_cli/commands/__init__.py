"""The commands. ``store/`` has the commands that look after a whole store. One file a command."""
