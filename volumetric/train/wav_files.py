"""Sound from WAV files: PCM of 8, 16, 24 and 32 bits, and floats of 32 and 64.

Python's ``wave`` refuses floats and, before 3.12, the extensible header of 24 bits; so the few chunks are read here
(Microsoft, "Multiple channel audio data and WAVE files").
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np

from volumetric.base._typing import Array, F32Array
from volumetric.base.errors import CheckpointError, SpecError, UnsupportedError
from volumetric.base.hints import path_hint
from volumetric.train.class_folders import files_by_class
from volumetric.train.problems import Problem

logger = logging.getLogger(__name__)

_PCM, _FLOAT, _EXTENSIBLE = 1, 3, 0xFFFE
_NAMES: Final = {2: "ADPCM", 6: "A-law", 7: "µ-law", 0x11: "IMA ADPCM", 0x55: "MP3"}
_LEAST_HEADER: Final = 16


def read_wav(path: Path) -> tuple[F32Array, int]:
    """Read a WAV file as float32 ``[channels, samples]``, and its rate in Hz.

    PCM of b bits is divided by 2^(b−1), so its values are −1 … 1.

    Raises
    ------
    CheckpointError : the file cannot be read, is no WAV file or is cut short
    UnsupportedError : its samples are compressed
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise CheckpointError(f"cannot read {path}: {error.strerror or error}", hint=path_hint(path)) from None
    if data[:4] != b"RIFF" or data[8:12] != b"WAVE":
        raise CheckpointError(f"{path} is no WAV file", hint="convert it, as by: ffmpeg -i FILE out.wav")
    chunks = _chunks(data, path)
    header, body = chunks.get(b"fmt "), chunks.get(b"data")
    if header is None or body is None or len(header) < _LEAST_HEADER:
        raise CheckpointError(f"{path} has no complete {'fmt' if body is not None else 'data'} chunk")
    tag, channels = (int.from_bytes(header[i : i + 2], "little") for i in (0, 2))
    rate, width, bits = (int.from_bytes(header[i:j], "little") for i, j in ((4, 8), (12, 14), (14, 16)))
    if tag == _EXTENSIBLE and len(header) >= 26:
        tag = int.from_bytes(header[24:26], "little")
    if tag not in (_PCM, _FLOAT) or bits not in ((8, 16, 24, 32) if tag == _PCM else (32, 64)):
        kind = _NAMES.get(tag, f"format {tag}") if tag not in (_PCM, _FLOAT) else f"{bits} bits a sample"
        raise UnsupportedError(
            f"{path} has {kind}; PCM of 8, 16, 24 or 32 bits and floats of 32 or 64 are read",
            hint="convert it: ffmpeg -i FILE -c:a pcm_s16le out.wav",
        )
    if not channels or not rate or width != channels * bits // 8 or len(body) % width:
        raise CheckpointError(f"{path}: {len(body)} bytes are no whole number of samples, or its header is damaged")
    values = _decode(body, bits, floats=tag == _FLOAT).reshape(-1, channels).T
    if not np.isfinite(values).all():
        raise CheckpointError(f"{path} has samples that are not finite")
    return np.ascontiguousarray(values, np.float32), rate


def _chunks(data: bytes, path: Path) -> dict[bytes, bytes]:
    """Return the first chunk of each name."""
    chunks: dict[bytes, bytes] = {}
    at = 12
    while at + 8 <= len(data):
        name, size = data[at : at + 4], int.from_bytes(data[at + 4 : at + 8], "little")
        if name in (b"fmt ", b"data") and at + 8 + size > len(data):
            raise CheckpointError(
                f"{path} is cut short: its {name.decode().strip()} chunk has {len(data) - at - 8} of {size} bytes"
            )
        chunks.setdefault(name, data[at + 8 : at + 8 + size])
        at += 8 + size + size % 2
    return chunks


def _decode(body: bytes, bits: int, *, floats: bool) -> Array:
    """Return samples as floats."""
    if floats:
        return np.frombuffer(body, f"<f{bits // 8}")
    if bits == 8:
        return (np.frombuffer(body, np.uint8).astype(np.float32) - 128) / 128
    if bits == 24:  # as the upper bytes of 32 bits
        wide = np.zeros((len(body) // 3, 4), np.uint8)
        wide[:, 1:] = np.frombuffer(body, np.uint8).reshape(-1, 3)
        return wide.view("<i4")[:, 0] / float(1 << 31)
    return np.frombuffer(body, f"<i{bits // 8}") / float(1 << (bits - 1))


def fit_sound(sound: Array, samples: int, channels: int, path: Path) -> Array:
    """Return a sound with a number of samples and channels: with zeros at its end, or cut; channels averaged to one.

    Raises
    ------
    SpecError : it has another number of channels
    """
    if channels == 1 and len(sound) > 1:
        sound = sound.mean(axis=0, keepdims=True)
    if len(sound) != channels:
        raise SpecError(f"{path} has {len(sound)} channels, expected {channels}", hint="channels = 1 averages them")
    fitted = np.zeros((channels, samples), np.float32)
    length = min(samples, sound.shape[1])
    fitted[:, :length] = sound[:, :length]
    return fitted


def expect_rate(path: Path, rate: int, expected: int) -> None:
    """Raise `SpecError` if a file has another rate: sounds are not resampled."""
    if rate != expected:
        raise SpecError(
            f"{path} has {rate} samples a second, expected {expected}; sounds are not resampled",
            hint=f"convert it: ffmpeg -i {path.name} -ar {expected} out.wav",
        )


def read_wav_folder(
    folder: Path, *, rate: int = 0, samples: int = 0, channels: int = 1, known: Sequence[str] = ()
) -> Problem:
    """Read ``folder/class/sound.wav``; a class is a folder, and its name.

    Parameters
    ----------
    rate : samples a second that all files must have (0: that of the first)
    samples : of each sound: shorter ones get zeros at the end, longer ones are cut with a warning (0: the longest)
    channels : 1 averages all channels of a file
    known : names of the classes, in order (empty: the folders, sorted)

    Returns
    -------
    Sounds ``[files, samples]``, or ``[files, channels, samples]`` with more than one channel

    Raises
    ------
    CheckpointError, SpecError, UnsupportedError
        See `read_wav`, `files_by_class`; or rates or channels are unequal.
    """
    classes, files = files_by_class(folder, (".wav",), "WAV files", known)
    sounds: list[tuple[Path, Array]] = []
    for path, _ in files:
        sound, own = read_wav(path)
        rate = rate or own
        expect_rate(path, own, rate)
        sounds.append((path, sound))
    longest = max(sound.shape[1] for _, sound in sounds)
    cut = sum(sound.shape[1] > samples for _, sound in sounds) if samples else 0
    if cut:
        logger.warning("%s: %d of %d sounds are longer than %d samples, and are cut", folder, cut, len(files), samples)
    inputs = np.stack([fit_sound(sound, samples or longest, channels, path) for path, sound in sounds])
    inputs = inputs[:, 0] if channels == 1 else inputs
    return Problem(
        inputs=inputs,
        targets=np.array([n for _, n in files]),
        classes=classes,
        shape=inputs.shape[2:] and inputs.shape[1:],
    )
