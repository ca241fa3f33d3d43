"""Text generation: sampling parameters, sampler, sessions and models."""

from __future__ import annotations

import lazy_loader

from volumetric.base.moved_modules import moved_names_getattr

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
__getattr__ = moved_names_getattr(__name__, __getattr__)
