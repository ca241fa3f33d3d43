"""Evolution of grids: genomes are whole networks, whose layers and links carry historical markings."""
