# ruff: noqa: TID252 (lazy_loader reads relative imports alone)
from . import dtypes as dtypes
from . import errors as errors
from . import layers as layers
from . import loaders as loaders
from . import rng as rng
from .dtypes import DType as DType
from .dtypes import Scheme as Scheme
from .dtypes import parse_dtype as parse_dtype
from .errors import CheckpointError as CheckpointError
from .errors import DeviceError as DeviceError
from .errors import DTypeError as DTypeError
from .errors import GenerationError as GenerationError
from .errors import ShapeError as ShapeError
from .errors import SpecError as SpecError
from .errors import UnsupportedError as UnsupportedError
from .errors import VolumetricError as VolumetricError
from .generate import Generation as Generation
from .generate import GenerationStats as GenerationStats
from .generate import Model as Model
from .generate import SamplingParams as SamplingParams
from .generate import Session as Session
from .generate import Stream as Stream
from .generate import TokenEvent as TokenEvent
from .generate import load as load
from .grid import Coord as Coord
from .grid import Grid as Grid
from .grid import Link as Link
from .network import Network as Network
from .network import initialise as initialise
from .runtime.lower import lower as lower
from .runtime.open import list_devices as list_devices
from .runtime.open import open_device as open_device
from .weights import Params as Params
from .weights import WeightStore as WeightStore

__version__: str
