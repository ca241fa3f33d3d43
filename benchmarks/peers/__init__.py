"""Peers on one GPU, measured beside this engine in one run: `benchmarks/gpu_peers.py` is the program."""
