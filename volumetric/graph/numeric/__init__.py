"""What several operations, or operations and others, mean in NumPy; what one operation means stands in its own module.

Formulas, activations, cells, norms, softmax and the choice of the largest serve several families of operations. Rope,
attention and windows serve layers, too, which ask them for angles, for the rows that a row sees and for the number of
windows; noise has the hash and the keys that devices and training share. What belongs to one of these functions, as the
gradient of softmax does, stands beside it.
"""
