"""Scaffolds: what stands around a recurrent core in a stack, each a container with one layer inside."""
