"""Foundations of the package: errors, registries, tables, random numbers."""
