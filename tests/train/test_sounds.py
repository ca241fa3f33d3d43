"""WAV files, alone and in folders by class."""

from __future__ import annotations

import struct
import wave
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.train.test_sample_sources import settings
from volumetric.base.errors import SpecError, VolumetricError
from volumetric.train import load_samples
from volumetric.train.sources import open_samples
from volumetric.train.wav_files import read_wav


def pcm(path: Path, values: Any, *, width: int = 2, rate: int = 8000, channels: int = 1) -> Path:
    """Write numbers in -1 … 1 by Python's wave."""
    path.parent.mkdir(parents=True, exist_ok=True)
    whole = np.round(np.asarray(values) * (1 << (8 * width - 1))).astype(np.int64)
    raw = (
        (whole + 128).astype(np.uint8).tobytes()
        if width == 1
        else b"".join(int(n).to_bytes(width, "little", signed=True) for n in whole.ravel())
    )
    with wave.open(str(path), "wb") as file:
        file.setnchannels(channels)
        file.setsampwidth(width)
        file.setframerate(rate)
        file.writeframes(raw)
    return path


WAVE = [0.5, -0.25, 0.0, -1.0, 0.75]


@pytest.mark.parametrize("width", [1, 2, 3, 4])
def test_pcm_of_all_widths(width: int, tmp_path: Path) -> None:
    sound, rate = read_wav(pcm(tmp_path / "x.wav", WAVE, width=width, rate=11025))
    assert rate == 11025
    np.testing.assert_allclose(sound, [WAVE], atol=0)


def chunked(*chunks: tuple[bytes, bytes]) -> bytes:
    body = b"".join(name + struct.pack("<I", len(data)) + data + b"\0" * (len(data) % 2) for name, data in chunks)
    return b"RIFF" + struct.pack("<I", 4 + len(body)) + b"WAVE" + body


def header(tag: int, bits: int, channels: int = 1, rate: int = 8000, more: bytes = b"") -> bytes:
    width = channels * bits // 8
    return struct.pack("<HHIIHH", tag, channels, rate, rate * width, width, bits) + more


FLOATS = np.array(WAVE, "<f4").tobytes()


@pytest.mark.parametrize(
    "content",
    [
        chunked((b"fmt ", header(3, 32)), (b"data", FLOATS)),
        chunked((b"LIST", b"odd"), (b"fmt ", header(3, 32)), (b"fact", bytes(4)), (b"data", FLOATS)),
        chunked((b"fmt ", header(0xFFFE, 32, more=struct.pack("<HHIH", 22, 32, 4, 3) + bytes(14))), (b"data", FLOATS)),
        chunked((b"fmt ", header(3, 64)), (b"data", np.array(WAVE, "<f8").tobytes())),
    ],
    ids=["float32", "other chunks", "extensible", "float64"],
)
def test_floats_and_other_headers(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "x.wav").write_bytes(content)
    np.testing.assert_array_equal(read_wav(tmp_path / "x.wav")[0], [WAVE])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "no WAV file"),
        (b"RIFF1234WAVE", "no complete data chunk"),
        (chunked((b"fmt ", header(3, 32))), "no complete data chunk"),
        (chunked((b"data", b"")), "no complete fmt chunk"),
        (chunked((b"fmt ", header(3, 32)), (b"data", FLOATS))[:-6], "cut short: its data chunk has 14 of 20"),
        (chunked((b"fmt ", header(6, 8)), (b"data", b"ab")), "A-law"),
        (chunked((b"fmt ", header(1, 12)), (b"data", b"ab")), "12 bits"),
        (chunked((b"fmt ", header(1, 16)), (b"data", b"abc")), "no whole number of samples"),
        (chunked((b"fmt ", header(1, 16, channels=0)), (b"data", b"ab")), "header is damaged"),
        (chunked((b"fmt ", header(3, 32)), (b"data", np.array([np.nan], "<f4").tobytes())), "not finite"),
    ],
)
def test_files_that_are_no_sounds(content: bytes, message: str, tmp_path: Path) -> None:
    (tmp_path / "x.wav").write_bytes(content)
    with pytest.raises(VolumetricError, match=message):
        read_wav(tmp_path / "x.wav")


def test_sounds_by_class(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    pcm(tmp_path / "s/no/1.wav", [0.5, 0.5, -0.5, -0.5], channels=2)
    pcm(tmp_path / "s/yes/1.wav", [0.25, 0.5, 0.75])
    samples = open_samples(settings(tmp_path, audio="s"))
    assert samples.problem.classes == ("no", "yes")
    np.testing.assert_array_equal(samples.problem.inputs, [[0.5, -0.5, 0], [0.25, 0.5, 0.75]])
    assert load_samples(tmp_path / "s", samples=2).inputs.shape == (2, 2)
    assert "1 of 2 sounds are longer than 2 samples" in caplog.text
    with pytest.raises(SpecError, match="8000 samples a second, expected 16000") as caught:
        load_samples(tmp_path / "s", rate=16000)
    assert "-ar 16000" in (caught.value.hint or "")
    with pytest.raises(SpecError, match="1 channels, expected 2"):
        load_samples(tmp_path / "s", channels=2)
