"""Convolutions over one, two or three spatial axes, with torch's fields and semantics.

A convolution (in fact a cross-correlation, as usual in deep learning) is one matrix product for each sample and group,
between the kernel and the windows of the image (im2col: Chellapilla et al. 2006).
"""

from __future__ import annotations

from math import prod
from typing import ClassVar, Literal

from volumetric.base._typing import Shape
from volumetric.base.errors import ShapeError, SpecError
from volumetric.graph.numeric.activations import Activation
from volumetric.graph.numeric.image_windows import Windows
from volumetric.layers.emit_scope import Scope
from volumetric.layers.layer_fields import activation_name, by_keyword, positional
from volumetric.layers.layer_spec import (
    ParamSpec,
    expect_positive,
    layer,
    layer_base,
    show_shape,
)
from volumetric.layers.windowed import Windowed


@layer_base
class Spatial(Windowed):
    """What convolutions and transposed convolutions have in common.

    Attributes
    ----------
    in_channels, out_channels : channels of images ``[N, C, *sizes]``
    kernel_size, stride, dilation : a number for all spatial axes, or one for each
    groups : number of groups of channels; a group of output channels sees only its group of input channels
    bias : whether each output channel has one
    activation : function of every element at the end
    """

    in_channels: int = positional()
    out_channels: int = positional()
    kernel_size: int | Shape = positional()
    stride: int | Shape = positional(default=1)
    padding: int | Shape | Literal["valid", "same"] = positional(default=0)
    dilation: int | Shape = 1
    groups: int = 1
    bias: bool = True
    activation: Activation = by_keyword(default="linear", converter=activation_name)

    def __post_init__(self) -> None:
        """Check the fields."""
        expect_positive(self, "in_channels", "out_channels", "groups")
        for name in ("in_channels", "out_channels"):
            if getattr(self, name) % self.groups:
                raise SpecError(f"{self.kind}: {name} {getattr(self, name)} does not divide into {self.groups} groups")
        self.windows()

    def windows(self) -> Windows:
        """Return the windows that the kernel sees."""
        kernel, stride = self.along("kernel_size", 1), self.along("stride", 1)
        dilation = self.along("dilation", 1)
        before, after = self.zeros(kernel, stride, dilation)
        return Windows(kernel=kernel, stride=stride, dilation=dilation, before=before, after=after)

    def zeros(self, kernel: Shape, stride: Shape, dilation: Shape) -> tuple[Shape, Shape]:
        """Return the padding before and after the image."""
        raise NotImplementedError(self.kind)

    def sizes(self, shape: Shape) -> Shape:
        """Return the spatial sizes of an input; raise `ShapeError` if the layer cannot read its shape."""
        if len(shape) != 2 + self.spatial or shape[1] != self.in_channels:
            raise ShapeError(
                f"{self.kind} expects [N, {self.in_channels}, {self.axes}], got shape {show_shape(shape)}",
                hint="channels come first: x.transpose(0, 3, 1, 2) moves them there, x[:, None] adds an axis of one",
            )
        return shape[2:]

    def bias_params(self) -> tuple[ParamSpec, ...]:
        """The bias, if there is one."""
        return (ParamSpec(name="bias", shape=(self.out_channels,), init="zeros", packable=False),) if self.bias else ()


@layer_base
class Conv(Spatial):
    """Convolution, with channels first.

    ::

        y[n, f, o] = act(Σ_{c,k} W[f, c, k] · x[n, c, stride·o + dilation·k − padding] + b[f])

    o and k have an index for each spatial axis. The output has
    ``⌊(size + 2·padding − dilation·(kernel − 1) − 1) / stride⌋ + 1`` places along it. W is
    ``[out_channels, in_channels / groups, *kernel]``; ``groups = in_channels`` is depthwise. The layer computes one
    product for each sample and group, of the kernel and the unfolded windows (Chellapilla et al. 2006).

    Attributes
    ----------
    padding : zeros on both sides of each spatial axis; ``"same"`` keeps the sizes (with stride 1; of an odd number of
        zeros the additional one goes to the end), ``"valid"`` is 0
    """

    def zeros(self, kernel: Shape, stride: Shape, dilation: Shape) -> tuple[Shape, Shape]:
        if self.padding != "same":
            padding = (0,) * self.spatial if self.padding == "valid" else self.along("padding", 0)
            return padding, padding
        if set(stride) != {1}:
            raise SpecError(f"{self.kind}: padding 'same' needs stride 1, got {self.stride}")
        total = tuple(d * (k - 1) for k, d in zip(kernel, dilation, strict=True))
        return tuple(t // 2 for t in total), tuple(t - t // 2 for t in total)

    def params(self) -> tuple[ParamSpec, ...]:
        shape = (self.out_channels, self.in_channels // self.groups, *self.along("kernel_size", 1))
        return ParamSpec(name="weight", shape=shape), *self.bias_params()

    def output_shape(self, *inputs: Shape) -> Shape:
        windows, sizes = self.windows(), self.sizes(inputs[0])
        counts = windows.counts(sizes)
        if min(counts) < 1:
            spans, padded = show_shape(windows.spans), show_shape(windows.padded_sizes(sizes))
            raise ShapeError(
                f"{self.kind}: a kernel that spans {spans} does not fit the padded sizes {padded}",
                hint="use a smaller kernel_size, or padding of half the kernel, as kernel_size=3, padding=1",
            )
        return (inputs[0][0], self.out_channels, *counts)

    def emit(self, scope: Scope, x: int) -> int:
        work, p = scope.work, scope.params(self)
        samples, channels, *sizes = work.shape(x)
        shape = self.output_shape(work.shape(x))
        counts, taps = shape[2:], prod(self.windows().kernel)
        pixels, deep, groups = prod(counts), channels // self.groups * taps, self.groups
        weight = work.reshape(p["weight"], (groups, self.out_channels // groups, deep))
        if taps == 1 and tuple(sizes) == counts and not any(self.windows().before):
            columns = x  # each pixel is a window
        else:
            columns = work.unfold(x, **self.windows().attributes(counts))
        product = work.gemm(weight, work.reshape(columns, (samples * groups, deep, pixels)), groups=samples * groups)
        return finish_conv(scope, self, p, work.reshape(product, (samples, self.out_channels, pixels)), shape)


@layer("conv1d")
class Conv1d(Conv):
    """Convolution of sequences ``[N, C, L]``; fields and formula as in `Conv`."""

    spatial: ClassVar[int] = 1


@layer("conv2d")
class Conv2d(Conv):
    """Convolution of images ``[N, C, H, W]``; fields and formula as in `Conv`."""

    spatial: ClassVar[int] = 2


@layer("conv3d")
class Conv3d(Conv):
    """Convolution of volumes ``[N, C, D, H, W]``; fields and formula as in `Conv`."""

    spatial: ClassVar[int] = 3


def finish_conv(scope: Scope, spec: Spatial, p: dict[str, int], y: int, shape: Shape) -> int:
    """Add the bias to ``[N, channels, pixels]``, apply the activation, and reshape the result."""
    work = scope.work
    if spec.bias:
        y = work.binary("add", y, work.reshape(p["bias"], (1, spec.out_channels, 1)))
    return work.reshape(work.unary(y, spec.activation), shape)
