"""Graphs of networks: turns plans into graphs that run and train on any device. The operations: `volumetric.graph`.

Names are imported on first use; see ``__init__.pyi``.
"""

from __future__ import annotations

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
