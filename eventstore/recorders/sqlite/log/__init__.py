"""The frames of a write-ahead log, for the pages of a damaged file."""
