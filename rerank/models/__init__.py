"""Models that score query-document pairs."""
