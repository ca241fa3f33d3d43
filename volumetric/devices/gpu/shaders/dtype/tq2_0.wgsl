// TQ2_0: all of it is in `block`.
