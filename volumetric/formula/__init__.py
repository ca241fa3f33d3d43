"""Formulas of element-wise functions, each defined once, as expressions from which every device's code is generated.

`functions` has activations and other functions of one number, `pairs` functions of two, `losses` the terms of losses,
`optimisers` update steps, `cells` recurrent cells. `expression` defines the expressions, `derivative` differentiates
them, and `writing` turns them into statements in the language of a device: NumPy
(`volumetric.graph.numeric.numpy_formulas`), Numba (`volumetric.devices.cpu.kernels.formula_kernels`), WGSL
(`volumetric.devices.gpu.shaders.wgsl_formulas`).
"""
