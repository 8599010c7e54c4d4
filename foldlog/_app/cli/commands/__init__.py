"""The commands. ``store/`` has the commands for a whole store. Each command has one file."""
