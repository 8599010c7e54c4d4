"""Commands that verify, salvage, encrypt and erase. One file a command."""
