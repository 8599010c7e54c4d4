"""An event as a row: rows, hash chain, row codec (compress, encrypt, checksum), keys."""
