"""Trees, grown on the same lists as networks are trained on, by any loss."""
