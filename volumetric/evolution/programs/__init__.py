"""Programs as genomes: their regions, edges and clocks are genes, which are called by their names."""
