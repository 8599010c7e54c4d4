"""Plain values: the outcome of a call that another thread made."""
