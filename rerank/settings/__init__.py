"""What things are made with: classes by name, ranges, YAML files, options."""
