"""The ladder: rankers over the same candidates, each of which has to earn its place on validation."""
