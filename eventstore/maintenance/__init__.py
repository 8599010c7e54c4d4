"""What an administrator runs: verify, copy, erase, rekey, backup, salvage."""
