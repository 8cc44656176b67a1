"""Models that read texts: cross-encoders."""
