"""Layers: each a frozen spec with its parameters, shape rule, NumPy reference forward and VJP in one file."""

from volumetric.layers.attention import MultiHeadAttention as MultiHeadAttention
from volumetric.layers.base import LAYERS as LAYERS
from volumetric.layers.base import Grads as Grads
from volumetric.layers.base import LayerSpec as LayerSpec
from volumetric.layers.base import Memory as Memory
from volumetric.layers.base import ParamSpec as ParamSpec
from volumetric.layers.base import layer as layer
from volumetric.layers.containers import Parallel as Parallel
from volumetric.layers.containers import Residual as Residual
from volumetric.layers.containers import Sequential as Sequential
from volumetric.layers.dense import Dense as Dense
from volumetric.layers.embedding import Embedding as Embedding
from volumetric.layers.embedding import PositionEmbedding as PositionEmbedding
from volumetric.layers.mlp import MLP as MLP
from volumetric.layers.mlp import SwiGLU as SwiGLU
from volumetric.layers.norm import LayerNorm as LayerNorm
from volumetric.layers.norm import RMSNorm as RMSNorm
from volumetric.layers.rope import Rope as Rope
from volumetric.layers.softmax import Softcap as Softcap
from volumetric.layers.softmax import Softmax as Softmax
