"""Scores of stored lists: shared by processes, as a run or a column."""
