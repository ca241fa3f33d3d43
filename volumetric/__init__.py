"""A numeric neural engine in pure Python: grids of layers in 21 numeric types, on NumPy, Numba and WGSL.

>>> import volumetric
>>> model = volumetric.load("HuggingFaceTB/SmolLM2-135M-Instruct")  # doctest: +SKIP
>>> print(model.generate("The capital of France is", max_tokens=8))  # doctest: +SKIP

Names are imported when they are first used, so that ``import volumetric`` costs nothing; see ``__init__.pyi``.
"""

from __future__ import annotations

import lazy_loader

from volumetric.base import moved_modules

__version__ = "0.1.0"

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
__getattr__ = moved_modules.moved_names_getattr(__name__, __getattr__)

moved_modules.install_moved_modules()
