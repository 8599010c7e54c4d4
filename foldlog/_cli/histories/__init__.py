"""Commands that add, list, show and export histories. One file a command."""
