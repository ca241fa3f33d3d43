"""NumPy functions shared by several operations, or by operations and layers; others are in the operation's module.

Formulas, activations, cells, norms, softmax and the choice of the largest serve several families of operations. Layers
also use rope, attention and windows, for angles, the rows that a row sees and the number of windows. Noise has the hash
and the keys that devices and training share. A gradient, such as that of softmax, is next to its function.
"""
