"""Programs as genomes: regions, edges and their properties are genes, identified by names."""
