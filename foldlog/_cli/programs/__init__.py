"""Commands for the programs whose conversations are kept, and that ask about them."""
