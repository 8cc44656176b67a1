"""Models over feature vectors: networks and gradient-boosted trees."""
