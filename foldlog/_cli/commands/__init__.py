"""The commands; ``store/`` has those that look after a whole store. One file a command."""
