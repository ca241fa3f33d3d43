"""Request bodies as types, parsed strictly: a field that has no effect is an error."""
