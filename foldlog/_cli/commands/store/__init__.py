"""The commands that look after a whole store. One file a command."""
