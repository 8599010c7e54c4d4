"""Run the command as ``python -m foldlog``, for example if its script is not on the path."""

from foldlog._app.cli import main

main()
