"""``python -m foldlog``: the command, also where its script is not on the path."""

from foldlog._cli import main

main()
