"""``python -m foldlog``: the command, also where its script is not on the path."""

from foldlog.cli import main

main()
