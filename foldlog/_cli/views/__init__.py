"""Commands that explain, compare and check Views. One file a command."""
