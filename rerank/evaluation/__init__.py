"""Scores of runs. Import from the modules, which stay cheap that way."""
