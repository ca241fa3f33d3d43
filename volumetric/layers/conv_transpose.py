"""Transposed convolutions over one, two or three spatial axes, with torch's fields, semantics and weight layout."""

from __future__ import annotations

from math import prod
from typing import ClassVar

from volumetric.base._typing import Shape
from volumetric.base.errors import ShapeError, SpecError
from volumetric.layers.conv import Spatial, finish_conv
from volumetric.layers.emit_scope import Scope
from volumetric.layers.layer_fields import positional
from volumetric.layers.layer_spec import ParamSpec, layer, layer_base


@layer_base
class ConvTranspose(Spatial):
    """Transposed convolution, with channels first.

    ::

        y[n, f, stride·i + dilation·k − padding] += Σ_c W[c, f, k] · x[n, c, i]        then + b[f] and act

    i and k have an index for each spatial axis. The output has
    ``(size − 1)·stride − 2·padding + dilation·(kernel − 1) + output_padding + 1`` places along it. W is
    ``[in_channels, out_channels / groups, *kernel]``. Without bias and activation, the layer is the gradient of the
    input of a convolution with the same fields and exchanged channels.

    Attributes
    ----------
    padding : elements cut off on both sides of each spatial axis
    output_padding : additional elements at the end of each spatial axis, fewer than its stride or its dilation. A
        convolution with a stride maps several sizes to one; this number selects the size that comes back
    """

    padding: int | Shape = positional(default=0)
    output_padding: int | Shape = positional(default=0)

    def __post_init__(self) -> None:
        """Check the fields."""
        Spatial.__post_init__(self)
        axes = zip(self.along("output_padding", 0), self.along("stride", 1), self.along("dilation", 1), strict=True)
        if any(more >= max(stride, dilation) for more, stride, dilation in axes):
            raise SpecError(
                f"{self.kind}: output_padding {self.output_padding} must be below stride {self.stride} "
                f"or dilation {self.dilation}"
            )

    def zeros(self, kernel: Shape, stride: Shape, dilation: Shape) -> tuple[Shape, Shape]:
        padding = self.along("padding", 0)
        return padding, padding

    def params(self) -> tuple[ParamSpec, ...]:
        shape = (self.in_channels, self.out_channels // self.groups, *self.along("kernel_size", 1))
        return ParamSpec(name="weight", shape=shape), *self.bias_params()

    def output_shape(self, *inputs: Shape) -> Shape:
        windows, more = self.windows(), self.along("output_padding", 0)
        axes = zip(self.sizes(inputs[0]), windows.stride, windows.spans, windows.before, more, strict=True)
        sizes = tuple((n - 1) * stride + span - 2 * cut + extra for n, stride, span, cut, extra in axes)
        if min(sizes) < 1:
            raise ShapeError(f"{self.kind}: padding leaves an empty output of sizes {list(sizes)}")
        return (inputs[0][0], self.out_channels, *sizes)

    def emit(self, scope: Scope, x: int) -> int:
        work, p = scope.work, scope.params(self)
        samples, channels, *counts = work.shape(x)
        shape = self.output_shape(work.shape(x))
        taps, pixels, groups = prod(self.windows().kernel), prod(counts), self.groups
        deep = self.out_channels // groups * taps
        weight = work.reshape(p["weight"], (groups, channels // groups, deep))
        parts = work.reshape(x, (samples * groups, channels // groups, pixels))
        columns = work.gemm(weight, parts, trans_a=True, groups=samples * groups)
        columns = work.reshape(columns, (samples, self.out_channels * taps, pixels))
        image = work.fold(columns, shape[2:], **self.windows().attributes(tuple(counts)))
        return finish_conv(scope, self, p, work.reshape(image, (samples, self.out_channels, prod(shape[2:]))), shape)


@layer("conv_transpose1d")
class ConvTranspose1d(ConvTranspose):
    """Transposed convolution of sequences ``[N, C, L]``; fields and formula as in `ConvTranspose`."""

    spatial: ClassVar[int] = 1


@layer("conv_transpose2d")
class ConvTranspose2d(ConvTranspose):
    """Transposed convolution of images ``[N, C, H, W]``; fields and formula as in `ConvTranspose`."""

    spatial: ClassVar[int] = 2


@layer("conv_transpose3d")
class ConvTranspose3d(ConvTranspose):
    """Transposed convolution of volumes ``[N, C, D, H, W]``; fields and formula as in `ConvTranspose`."""

    spatial: ClassVar[int] = 3
