# ruff: noqa: TID252 (lazy_loader reads relative imports alone)
from .grid import Coord as Coord
from .grid import Grid as Grid
from .grid import Link as Link
from .grid import Port as Port
from .network import INPUT as INPUT
from .network import OUTPUT as OUTPUT
from .network import Network as Network
from .network import check_params as check_params
from .network import initialise as initialise
from .weight_store import Params as Params
from .weight_store import WeightStore as WeightStore
