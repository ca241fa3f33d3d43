"""Event files hold every number under its tag, in the format that TensorBoard reads."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from tests.train.problems import perceptron, waves
from volumetric.base.errors import CheckpointError
from volumetric.network import initialise
from volumetric.train import TrainConfig, train
from volumetric.train.tensorboard import TensorBoardReporter, _masked_crc


def varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value, shift, at = value | (byte & 127) << shift, shift + 7, at + 1
        if byte < 128:
            return value, at


def message(data: bytes) -> list[tuple[int, object]]:
    """Fields of a protobuf message, by its own rules."""
    fields: list[tuple[int, object]] = []
    at = 0
    while at < len(data):
        key, at = varint(data, at)
        if key & 7 == 2:
            size, at = varint(data, at)
            fields.append((key >> 3, data[at : at + size]))
            at += size
        elif key & 7 == 0:
            value, at = varint(data, at)
            fields.append((key >> 3, value))
        else:
            form, size = ("<d", 8) if key & 7 == 1 else ("<f", 4)
            fields.append((key >> 3, struct.unpack_from(form, data, at)[0]))
            at += size
    return fields


def records(path: Path) -> list[dict[int, object]]:
    data, at, found = path.read_bytes(), 0, []
    while at < len(data):
        (size,) = struct.unpack_from("<Q", data, at)
        assert struct.unpack_from("<I", data, at + 8)[0] == _masked_crc(data[at : at + 8])
        body = data[at + 12 : at + 12 + size]
        assert struct.unpack_from("<I", data, at + 12 + size)[0] == _masked_crc(body)
        found.append(dict(message(body)))
        at += 16 + size
    return found


def test_the_checksum_is_the_published_one() -> None:
    crc = 0xE3069283  # of CRC-32C, for "123456789"
    assert _masked_crc(b"123456789") == ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def test_a_run_can_be_read_back(tmp_path: Path) -> None:
    network = perceptron(4, 5, 1)
    config = TrainConfig(epochs=2)
    results = [
        train(network, initialise(network), waves(64, 16), config, reporters=[TensorBoardReporter(tmp_path)])
        for _ in range(2)  # a second run adds a file
    ]
    files = sorted(tmp_path.glob("events.out.tfevents.*"))
    assert len(files) == 2
    head, *rest = records(files[0])
    assert head[3] == b"brain.Event:2"
    told = []
    for record in rest:
        assert isinstance(record[5], bytes)
        for _, value in message(record[5]):
            assert isinstance(value, bytes)
            fields = dict(message(value))
            told.append((record[2], fields[1], fields[2]))
    tags = [b"step/loss", b"step/rate", b"step/gradient_norm"]
    assert [tag for step, tag, _ in told if step == 1] == tags
    losses = [value for _, tag, value in told if tag == b"epoch/loss"]
    assert losses == pytest.approx([event.loss for event in results[0].history])
    assert [step for step, tag, _ in told if tag == b"step/loss"] == list(range(1, 9))


def test_a_directory_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CheckpointError, match="cannot write"):
        TensorBoardReporter(tmp_path / "file").start(0, 0)
