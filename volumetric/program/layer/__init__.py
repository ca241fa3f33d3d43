"""Programs: typed regions of a canvas, and edges between them that read and write at clocked steps."""
