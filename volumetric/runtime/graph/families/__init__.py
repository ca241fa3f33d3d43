"""The operations by family. Importing this package fills `OPS`."""

from volumetric.runtime.graph.families import edges as edges
from volumetric.runtime.graph.families import elementwise as elementwise
from volumetric.runtime.graph.families import experts as experts
from volumetric.runtime.graph.families import images as images
from volumetric.runtime.graph.families import linear_scan as linear_scan
from volumetric.runtime.graph.families import moving as moving
from volumetric.runtime.graph.families import noise as noise
from volumetric.runtime.graph.families import norms as norms
from volumetric.runtime.graph.families import pools as pools
from volumetric.runtime.graph.families import products as products
from volumetric.runtime.graph.families import rotate_scan as rotate_scan
from volumetric.runtime.graph.families import rows as rows
from volumetric.runtime.graph.families import rowwise as rowwise
from volumetric.runtime.graph.families import scan as scan
from volumetric.runtime.graph.families import sequences as sequences
from volumetric.runtime.graph.families import state_space as state_space
from volumetric.runtime.graph.families import training as training
from volumetric.runtime.graph.families.base import OPS as OPS
from volumetric.runtime.graph.families.base import Op as Op
