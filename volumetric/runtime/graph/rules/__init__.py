"""How each layer kind becomes nodes of a graph. Importing this package fills `RULES`."""

from volumetric.runtime.graph.rules import agalite as agalite
from volumetric.runtime.graph.rules import attention as attention
from volumetric.runtime.graph.rules import axon as axon
from volumetric.runtime.graph.rules import cells as cells
from volumetric.runtime.graph.rules import channels as channels
from volumetric.runtime.graph.rules import chunks as chunks
from volumetric.runtime.graph.rules import column as column
from volumetric.runtime.graph.rules import containers as containers
from volumetric.runtime.graph.rules import convolved as convolved
from volumetric.runtime.graph.rules import images as images
from volumetric.runtime.graph.rules import noise as noise
from volumetric.runtime.graph.rules import pooling as pooling
from volumetric.runtime.graph.rules import recurrent as recurrent
from volumetric.runtime.graph.rules import rowwise as rowwise
from volumetric.runtime.graph.rules import scaffolds as scaffolds
from volumetric.runtime.graph.rules import softmaxes as softmaxes
from volumetric.runtime.graph.rules import state_space as state_space
from volumetric.runtime.graph.rules import xl_attention as xl_attention
from volumetric.runtime.graph.rules.base import RULES as RULES
from volumetric.runtime.graph.rules.base import GraphTraining as GraphTraining
from volumetric.runtime.graph.rules.base import Scope as Scope
