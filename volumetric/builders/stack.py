"""Stacks: recurrent layers with one interface; a layer is a scaffolded core or a column of several."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TypeAlias

from volumetric.base._typing import ROWS
from volumetric.base.errors import SpecError
from volumetric.builders.presets import Preset, presets_of
from volumetric.builders.sequential import chain
from volumetric.layers import Column, Dense, Embedding, LayerNorm, LayerSpec
from volumetric.layers.layer_spec import show_shape
from volumetric.network import Network
from volumetric.network.grid import Coord, Link

Cell: TypeAlias = Preset | LayerSpec | str
"""A preset, a layer, or a pattern as in `auto_stack`."""


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
    """Return a stack: one layer in each plane, then a layer norm.

    A layer of several cells is a `Column`; a layer of one cell is that cell. All layers read and return rows of `width`
    features and have states, so a stack can run on streams and train in windows.

    Parameters
    ----------
    layers : cells of each layer: presets such as ``builders.presets.XL()``, layers, or patterns such as ``"AX"``
    norm : whether a layer norm follows the last layer
    embed : size of the vocabulary, if the stack reads token ids through an `Embedding`
    inputs : number of input features, if it reads them through a `Dense` layer; with neither, it reads `width` features
    classes : number of outputs, such as logits, of a `Dense` layer at the end; None: it returns `width` features
    tied : whether that layer shares the weights of the embedding, without a bias

    Raises
    ------
    SpecError, ShapeError
        `layers` is empty, a layer changes the width, or `embed`, `inputs` and `tied` contradict each other.

    Examples
    --------
    >>> from volumetric.builders import presets, stack
    >>> network = stack(64, [[presets.Axon(), presets.XL()], "S"], embed=256, classes=256)
    >>> [spec.kind for spec in network.layers.values()]
    ['embedding', 'column', 'post_up_gated', 'layer_norm', 'dense']
    """
    if isinstance(layers, str) or not layers:
        raise SpecError(f"stack: layers must be a list of at least one layer, got {layers!r}", hint='["AX", "MS"]')
    if embed is not None and inputs is not None:
        raise SpecError(
            "stack: embed and inputs exclude each other", hint="give embed for token ids, or inputs for features"
        )
    if tied and (embed is None or classes != embed):
        raise SpecError(f"stack: tied needs classes equal to embed, got {classes} and {embed}")
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
    """Return a `stack` of `depth` layers; the tokens of a pattern name the cells of each layer.

    ``A`` is `presets.Axon`, ``X`` XL, ``M`` MLSTM, ``S`` SLSTM, ``L`` LSTM, ``C`` CausalConv, ``Ag`` AGaLiTe; with
    ``^`` after a token, the projections of its core are `layers.AxonLinear`.

    Parameters
    ----------
    pattern : pattern of every layer, or a list with one for each layer
    norm, embed, inputs, classes, tied : see `stack`

    Raises
    ------
    SpecError, ShapeError
        As for `stack`; a token is unknown, or the list does not have `depth` patterns.

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
        raise SpecError(
            f"auto_stack: got {len(patterns)} patterns for {depth} layers",
            hint="give one for each layer, or one for all",
        )
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
    """Return an `auto_stack` for a data set: `inputs` or `vocabulary` at the start, `outputs` at the end.

    Parameters
    ----------
    outputs : number of output features
    pattern, patterns : pattern of all layers, or a list with one for each layer, whose length is the depth
    vocabulary : number of tokens, if the data are token ids
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
            raise SpecError(
                f"stack: layer {number} has the unknown cell {cell!r}",
                hint='give a preset, a layer, or a pattern such as "AX"',
            )
    if not specs:
        raise SpecError(f"stack: layer {number} has no cells")
    rows = (ROWS, width)
    for spec in specs:
        output_shape = spec.output_shape(rows)
        if output_shape != rows:
            raise SpecError(
                f"stack: {spec.kind} in layer {number} maps {show_shape(rows)} to {show_shape(output_shape)}"
            )
    return specs[0] if len(specs) == 1 else Column(embed_dim=width, experts=tuple(specs))
