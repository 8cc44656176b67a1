"""One training loop for every scorer, loss and kind of list."""
