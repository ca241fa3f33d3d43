"""Mixtures of experts over many rows: rows grouped by expert, products of each group with its expert, weighted sum."""
