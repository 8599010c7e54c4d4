"""Commands that verify, encrypt, erase and redact. One file a command."""
