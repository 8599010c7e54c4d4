"""The commands for a whole store. Each command has one file."""
