"""Commands that condense histories, and compare condensers. One file a command."""
