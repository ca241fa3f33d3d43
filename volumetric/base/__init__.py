"""What all of the package stands on: errors, registries, tables, random numbers."""
