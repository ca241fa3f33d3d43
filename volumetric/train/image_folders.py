"""Images from files and folders, one folder for each class; decoded by Pillow."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from volumetric.base._typing import Array, F32Array
from volumetric.base.errors import CheckpointError, SpecError, UnsupportedError
from volumetric.base.hints import path_hint
from volumetric.train.class_folders import files_by_class
from volumetric.train.problems import Problem
from volumetric.train.table_objects import EXTRA

IMAGE_SUFFIXES: Final = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm")
MAX_PIXELS: Final = 100_000_000
"""Pixels of one file; the size is read before the pixels are, so a small file cannot fill the memory."""
_MODES: Final = {1: "L", 3: "RGB", 4: "RGBA"}


def read_image(path: Path, size: Sequence[int] = (), channels: int = 3) -> F32Array:
    """Read an image as float32 ``[channels, height, width]`` with values 0 … 1.

    Parameters
    ----------
    size : height and width to which the image is scaled, bilinear over all pixels that a new one covers; empty: its own
    channels : 1 grey, 3 red, green and blue, 4 with opacity

    Raises
    ------
    UnsupportedError : Pillow is not installed
    CheckpointError : the file cannot be read, or is no image
    SpecError : `channels` or `size` is invalid
    """
    if channels not in _MODES:
        raise SpecError(f"channels must be 1, 3 or 4, got {channels}", hint="1 is grey, 3 colour")
    if size and (len(size) != 2 or min(size) < 1):
        raise SpecError(f"size must be [height, width], got {list(size)}", hint="for example size = [32, 32]")
    try:
        pillow: Any = importlib.import_module("PIL.Image")
    except ImportError:
        raise UnsupportedError(f"{path}: images need Pillow, which is not installed", hint=EXTRA) from None
    try:
        with pillow.open(path) as image:
            if image.width * image.height > MAX_PIXELS:
                raise CheckpointError(f"{path} has {image.width} × {image.height} pixels", hint="scale it down")
            converted = image.convert(_MODES[channels])
            if size and (converted.height, converted.width) != tuple(size):
                converted = converted.resize((size[1], size[0]), pillow.Resampling.BILINEAR)
            pixels = np.asarray(converted, np.uint8)
    except CheckpointError:
        raise
    except FileNotFoundError as error:
        raise CheckpointError(f"cannot read {path}: {error.strerror}", hint=path_hint(path)) from None
    except Exception as error:  # decoders of Pillow raise anything for damaged files
        raise CheckpointError(f"{path} is no image that Pillow can read: {str(error)[:120]}") from None
    pixels = pixels[None] if channels == 1 else np.moveaxis(pixels, -1, 0)
    return np.ascontiguousarray(pixels, np.float32) / np.float32(255)


def read_image_folder(folder: Path, size: Sequence[int] = (), channels: int = 3, known: Sequence[str] = ()) -> Problem:
    """Read ``folder/class/image.png``; a class is a folder, and its name.

    Parameters
    ----------
    size, channels : see `read_image`; without a size all images must have the same
    known : names of the classes, in order (empty: the folders, sorted)

    Raises
    ------
    CheckpointError, SpecError, UnsupportedError : see `read_image` and `files_by_class`
    """
    classes, files = files_by_class(folder, IMAGE_SUFFIXES, "images", known)
    images: list[Array] = []
    for path, _ in files:
        image = read_image(path, size, channels)
        if images and image.shape != images[0].shape:
            raise SpecError(
                f"{path} has {image.shape[1]} × {image.shape[2]} pixels, {files[0][0].name} "
                f"{images[0].shape[1]} × {images[0].shape[2]}",
                hint="set size = [height, width] to scale all images to one size",
            )
        images.append(image)
    targets = np.array([number for _, number in files])
    return Problem(inputs=np.stack(images), targets=targets, classes=classes, shape=images[0].shape)
