"""Mixtures of experts over many rows: rows by expert, products of each expert with its own, and their weighted sum."""
