"""Scores of stored lists: shared by processes, in parts that a stopped scoring resumes from, as a run or a column."""
