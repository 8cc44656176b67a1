"""Report pages: one HTML file without anything outside it."""
