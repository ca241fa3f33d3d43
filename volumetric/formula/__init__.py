"""What is computed for single numbers, each meaning once: as expressions that every device's code is written from.

`functions` has activations and other functions of one number, `pairs` those of two, `losses` the terms of losses,
`optimisers` steps, `cells` recurrent cells. `expression` is what they are made of, `derivative` differentiates it, and
`writing` makes statements of it in the language of a device: NumPy (`volumetric.graph.numeric.formulas`), Numba
(`volumetric.devices.cpu.kernels.formulas`), WGSL (`volumetric.devices.gpu.shaders.formulas`).
"""
