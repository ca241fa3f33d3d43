"""The endpoints, one file each."""
