"""Stacks: layers of recurrent cores behind one interface, each a scaffold or a column of several."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TypeAlias

from volumetric.base._typing import ROWS
from volumetric.base.errors import SpecError
from volumetric.builders.chain import chain
from volumetric.builders.presets import Preset, presets_of
from volumetric.layers import Column, Dense, Embedding, LayerNorm, LayerSpec
from volumetric.layers.base import show_shape
from volumetric.network import Network
from volumetric.network.grid import Coord, Link

Cell: TypeAlias = Preset | LayerSpec | str
"""A preset, a layer as it is, or a pattern as `auto_stack` takes it."""


def stack(
    width: int,
    layers: Sequence[Cell | Sequence[Cell]],
    *,
    norm: bool = True,
    embed: int | None = None,
    inputs: int | None = None,
    classes: int | None = None,
    tied: bool = False,
) -> Network:
    """Return a stack: one layer a plane, then a layer norm.

    A layer of several cells is a `Column` of them, one of a single cell is that cell. All are from rows of `width`
    features to such rows, and keep states, so that a stack runs as a stream and learns in windows.

    Parameters
    ----------
    layers : of each layer its cells: presets such as ``builders.presets.XL()``, layers, or patterns such as ``"AX"``
    norm : whether there is a layer norm behind the last one
    embed : the stack reads token ids below this, through an `Embedding`
    inputs : it reads rows of so many features, through a `Dense` layer; neither: rows of `width` features
    classes : it makes rows of so many features, by a `Dense` layer at the end, as of logits; None: rows of `width`
    tied : that layer has the weights of the embedding, and no bias

    Raises
    ------
    SpecError, ShapeError
        There are no layers, one does not keep the width, or `embed`, `inputs` and `tied` do not go together.

    Examples
    --------
    >>> from volumetric.builders import presets, stack
    >>> network = stack(64, [[presets.Axon(), presets.XL()], "S"], embed=256, classes=256)
    >>> [spec.kind for spec in network.layers.values()]
    ['embedding', 'column', 'post_up_gated', 'layer_norm', 'dense']
    """
    if isinstance(layers, str) or not layers:
        raise SpecError(f"stack: layers are a list of at least one, got {layers!r}", hint='["AX", "MS"]')
    if embed is not None and inputs is not None:
        raise SpecError("stack: embed and inputs are both given", hint="a stack reads ids or features")
    if tied and (embed is None or classes != embed):
        raise SpecError(f"stack: tied needs as many classes as embed tells, got {classes} and {embed}")
    specs: list[LayerSpec] = []
    if embed is not None:
        specs.append(Embedding(num_embeddings=embed, embedding_dim=width))
    elif inputs is not None:
        specs.append(Dense(in_features=inputs, out_features=width))
    specs += (_layer(width, number, cells) for number, cells in enumerate(layers))
    if norm:
        specs.append(LayerNorm(num_features=width))
    if classes is not None:
        specs.append(Dense(in_features=width, out_features=classes, bias=not tied))
    shape = () if embed is not None else (width if inputs is None else inputs,)
    network = chain(specs, shape, "float32" if embed is None else "int32")
    if not tied:
        return network
    head = Coord(len(specs) - 1)
    return dataclasses.replace(network, links=(Link(kind="shared", source=Coord(0), target=head),))


def auto_stack(
    width: int,
    depth: int,
    pattern: str | Sequence[str] = "AXMS",
    *,
    norm: bool = True,
    embed: int | None = None,
    inputs: int | None = None,
    classes: int | None = None,
    tied: bool = False,
) -> Network:
    """Return a `stack` of `depth` layers, the cells of each given by the tokens of a pattern.

    ``A`` is `presets.Axon`, ``X`` XL, ``M`` MLSTM, ``S`` SLSTM, ``L`` LSTM, ``C`` CausalConv, ``Ag`` AGaLiTe; with
    ``^`` behind it, the core's projections are `layers.AxonLinear`.

    Parameters
    ----------
    pattern : of every layer; or a list with one for each
    norm, embed, inputs, classes, tied : as of `stack`

    Raises
    ------
    SpecError, ShapeError
        As `stack`; an unknown token, or a list that has not `depth` patterns.

    Examples
    --------
    >>> from volumetric.builders import auto_stack
    >>> [spec.kind for spec in auto_stack(16, 2, ["S", "AL"]).layers.values()]
    ['post_up_gated', 'column', 'layer_norm']
    """
    if isinstance(depth, bool) or not isinstance(depth, int) or depth < 1:
        raise SpecError(f"auto_stack: depth must be a whole number above 0, got {depth!r}")
    patterns = [pattern] * depth if isinstance(pattern, str) else list(pattern)
    if len(patterns) != depth:
        raise SpecError(f"auto_stack: {len(patterns)} patterns for {depth} layers", hint="one each, or one for all")
    ends = {"norm": norm, "embed": embed, "inputs": inputs, "classes": classes, "tied": tied}
    return stack(width, patterns, **ends)


def stack_of_data(
    outputs: int,
    *,
    width: int = 64,
    depth: int = 2,
    pattern: str = "AXMS",
    patterns: tuple[str, ...] = (),
    vocabulary: int | None = None,
    inputs: int | None = None,
    norm: bool = True,
    tied: bool = False,
) -> Network:
    """Return an `auto_stack` between what data give and what they ask for, as configuration files name it.

    Parameters
    ----------
    outputs : features at the end
    pattern, patterns : of all layers; or of each, whose number is then the depth
    vocabulary : the data are token ids
    inputs : features of a row of the data
    """
    each = list(patterns) or [pattern] * depth
    return stack(
        width, each, norm=norm, embed=vocabulary, inputs=None if vocabulary else inputs, classes=outputs, tied=tied
    )


def _layer(width: int, number: int, cells: Cell | Sequence[Cell]) -> LayerSpec:
    cell_list = [cells] if isinstance(cells, (Preset, LayerSpec, str)) else list(cells)
    specs: list[LayerSpec] = []
    for cell in cell_list:
        if isinstance(cell, str):
            specs += (preset.at(width) for preset in presets_of(cell))
        elif isinstance(cell, Preset):
            specs.append(cell.at(width))
        elif isinstance(cell, LayerSpec):
            specs.append(cell)
        else:
            raise SpecError(f"stack: layer {number} has {cell!r}", hint='a preset, a layer, or a pattern such as "AX"')
    if not specs:
        raise SpecError(f"stack: layer {number} has no cells")
    rows = (ROWS, width)
    for spec in specs:
        output_shape = spec.output_shape(rows)
        if output_shape != rows:
            raise SpecError(
                f"stack: {spec.kind} of layer {number} makes {show_shape(output_shape)} of {show_shape(rows)}"
            )
    return specs[0] if len(specs) == 1 else Column(embed_dim=width, experts=tuple(specs))
