"""The configuration of condensers. If a program imports any module of this package, the strategies
of foldlog are registered.

parameters   a pydantic model for each strategy: its parameters, their ranges and defaults, its
             aliases
registry     the strategies by `type`, open to other packages
toml         a condenser from a TOML file
"""

from foldlog.condensers.config import parameters as _parameters  # noqa: F401  it registers our own strategies
