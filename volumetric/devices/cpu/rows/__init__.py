"""Row operations, as CPU steps."""
