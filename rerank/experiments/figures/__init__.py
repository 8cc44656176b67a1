"""An experiment's pictures."""
