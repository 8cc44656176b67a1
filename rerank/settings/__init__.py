"""Settings: classes by name, ranges, YAML files, options."""
