"""The configuration of condensers. Importing this package loads nothing.

parameters   a pydantic model for each strategy: its parameters, their ranges and defaults, its aliases
registry     the union of those models by `type`, open to other packages
toml         a condenser from a TOML file
"""
