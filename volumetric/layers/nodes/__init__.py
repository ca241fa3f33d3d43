"""What larger layers write into a graph, for the `emit` of their specs."""
