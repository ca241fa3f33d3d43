"""Suites: a table of cases each, measured in turn with a peer, whose rows are Markdown, CSV or JSON."""
