"""The graph: how any network runs and trains on any device. The operations are listed in `ops`.

A graph is data: tensors, and nodes that compute some from others. It knows nothing of layers, which write graphs, and
nothing of kernels, which run them. Names are imported when they are first used; see ``__init__.pyi``.
"""

from __future__ import annotations

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
