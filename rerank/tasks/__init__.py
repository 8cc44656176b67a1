"""Public functions behind the commands; each returns an object."""
