"""The commands for a whole store. One file a command."""
