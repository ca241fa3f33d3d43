"""CausalConv1d: a short causal convolution over the rows of a sequence, as a separate layer."""

from __future__ import annotations

from typing import ClassVar

from volumetric.base._typing import Shape
from volumetric.graph.state_spec import StateSpec, is_sequence
from volumetric.layers.causal_conv import causal_conv as emit_causal_conv
from volumetric.layers.causal_conv import conv_params, conv_state
from volumetric.layers.emit_scope import Scope
from volumetric.layers.layer_fields import positional
from volumetric.layers.layer_spec import (
    LayerSpec,
    ParamSpec,
    expect_last,
    expect_positive,
    layer,
)


@layer("causal_conv1d")
class CausalConv1d(LayerSpec):
    """A causal convolution over the rows of a sequence, on ``[…, T, channels]``.

    ::

        y[t] = Σ_l w[K − 1 − l] ⊙ x[t − l] + b        l = 0 … K − 1, of rows of the same sequence

    A row sees itself and earlier rows only. Each channel has its own weights, ``[channels, 1, K]``, as in torch's
    ``Conv1d(groups=channels)`` with padding on the left. With `mixing` each tap is a matrix,
    ``[channels, channels, K]``, as in ``Conv1d`` without groups. The state of a sequence is its last K − 1 rows. Rows
    from before a reset count as zeros, also in the state.

    Attributes
    ----------
    channels : width of input and output
    kernel_size : rows that a row sees, itself among them
    mixing : whether a channel sees the others
    bias : whether there is one
    """

    contextual: ClassVar[bool] = True
    takes_resets: ClassVar[bool] = True

    channels: int = positional()
    kernel_size: int = positional(default=4)
    mixing: bool = False
    bias: bool = True

    def __post_init__(self) -> None:
        """Check the fields."""
        expect_positive(self, "channels", "kernel_size")

    def params(self) -> tuple[ParamSpec, ...]:
        if not self.mixing:
            return conv_params("", self.channels, self.kernel_size, bias=self.bias)
        weight = ParamSpec(name="weight", shape=(self.channels, self.channels, self.kernel_size))
        own = ParamSpec(name="bias", shape=(self.channels,), init="zeros", packable=False)
        return (weight, own) if self.bias else (weight,)

    def states(self, *inputs: Shape) -> tuple[StateSpec, ...]:
        if self.kernel_size == 1 or not is_sequence(*inputs):
            return ()
        return (conv_state(self.channels, self.kernel_size),)

    def output_shape(self, *inputs: Shape) -> Shape:
        expect_last(self, inputs[0], self.channels)
        return inputs[0]

    def emit(self, scope: Scope, x: int) -> int:
        p = scope.params(self)
        return emit_causal_conv(scope, x, p["weight"], p.get("bias"))
