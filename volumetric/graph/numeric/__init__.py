"""What operations mean, in NumPy: the functions that the interpreter runs and that devices are held to."""
