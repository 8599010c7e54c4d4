"""The commands. ``store/`` has the commands for a whole store. One file a command."""
