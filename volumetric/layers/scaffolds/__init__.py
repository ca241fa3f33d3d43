"""Scaffolds: containers around a recurrent core in a stack, each with one nested layer."""
