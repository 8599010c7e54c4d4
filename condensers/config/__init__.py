"""The configuration of condensers. Importing this package registers the strategies of foldlog.

parameters   a pydantic model for each strategy: its parameters, their ranges and defaults, its
             aliases
registry     the strategies by `type`, open to other packages
toml         a condenser from a TOML file
"""

# The import registers our own strategies.
from foldlog.condensers.config import parameters as _parameters  # noqa: F401
