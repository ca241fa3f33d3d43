# ruff: noqa: TID252 (lazy_loader reads relative imports alone)
from .open import list_devices as list_devices
from .open import open_device as open_device
