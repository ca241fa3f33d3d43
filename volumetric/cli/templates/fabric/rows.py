"""Write a sequence of the task that the fabric has not seen: rows.npz, tokens [1, 32]."""

from __future__ import annotations

import numpy as np

from volumetric.train import memory

sample = memory.majority(seed=2, samples=1, length=32, split="test", dense=True)
np.savez("rows.npz", input=sample.inputs)
print("tokens ", *sample.inputs[0])
print("answers", *("." if answer < 0 else answer for answer in sample.targets[0]))
