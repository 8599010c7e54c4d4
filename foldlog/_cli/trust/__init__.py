"""Commands that verify, salvage, encrypt, erase and redact. One file a command."""
