"""Files and folders that are whole or absent, Arrow files, locks and fingerprints."""
