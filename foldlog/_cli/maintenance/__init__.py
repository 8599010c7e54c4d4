"""Commands that copy, save and tidy a whole store. One file a command."""
