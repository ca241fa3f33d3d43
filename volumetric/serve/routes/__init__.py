"""The endpoints, a file each."""
