"""Programs as genomes: regions, edges and what they are made of are genes, which are called by their names."""
