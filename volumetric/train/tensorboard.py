"""History for TensorBoard: event files of scalars, written without TensorBoard or protobuf.

A file is a sequence of records with length and checksums; a record is a protobuf message ``Event`` with a time, a
step and a list of tags with values. Both formats are TensorFlow's (``tfrecord``, ``event.proto``, ``summary.proto``).
"""

from __future__ import annotations

import struct
import time
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO, Final

from volumetric.base.errors import CheckpointError
from volumetric.base.hints import write_hint
from volumetric.train.training_events import EpochEvent, StepEvent, TargetEvent

_POLYNOMIAL: Final = 0x82F63B78  # CRC-32C, reflected
_MASK: Final = 0xA282EAD8
_VARINT, _DOUBLE, _BYTES, _FLOAT = 0, 1, 2, 5


class TensorBoardReporter:
    """Writes loss, learning rate and gradient norm of every update, and the losses of every epoch.

    Parameters
    ----------
    directory : log directory of TensorBoard (``tensorboard --logdir``); a resumed run adds a file

    Raises
    ------
    CheckpointError
        The directory cannot be written.
    """

    def __init__(self, directory: str | Path) -> None:
        self.directory: Path = Path(directory)
        self._file: BinaryIO | None = None

    def start(self, step: int, epoch: int) -> None:
        """Begin a new file."""
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            path = self.directory / f"events.out.tfevents.{time.time_ns() // 1000:016d}.volumetric"
            self._file = path.open("xb")
        except OSError as error:
            raise CheckpointError(
                f"cannot write {self.directory}: {error.strerror or error}", hint=write_hint(self.directory)
            ) from error
        self._write(_field(1, _DOUBLE, time.time()) + _field(3, _BYTES, b"brain.Event:2"))

    def report(self, event: Any, /) -> None:
        """Write the numbers of an event."""
        if isinstance(event, StepEvent):
            scalars = {"loss": event.loss, "rate": event.rate, "gradient_norm": event.gradient_norm}
            scalars |= {f"loss/{name}": value for name, value in event.losses.items()}
            self._scalars(event.step, {f"step/{name}": value for name, value in scalars.items()})
        elif isinstance(event, TargetEvent):
            layer_scalars = {
                f"{name}/{of.where}": getattr(of, name) for of in event.layers for name in ("budget", "gap")
            }
            self._scalars(event.step, layer_scalars)
        elif isinstance(event, EpochEvent):
            epoch_scalars = {
                "loss": event.loss,
                "validation_loss": event.validation_loss,
                "metric": event.metric,
                "accuracy": event.accuracy,
            }
            for kind, of in (("loss", event.losses), ("validation_loss", event.validation_losses)):
                epoch_scalars |= {f"{kind}/{name}": value for name, value in of.items()}
            epoch_scalars |= {f"accuracy/{name}": value for name, value in event.accuracies.items()}
            self._scalars(event.step, {f"epoch/{name}": v for name, v in epoch_scalars.items() if v is not None})

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _scalars(self, step: int, values: dict[str, float]) -> None:
        summary = b"".join(
            _field(1, _BYTES, _field(1, _BYTES, tag.encode()) + _field(2, _FLOAT, value))
            for tag, value in values.items()
        )
        self._write(_field(1, _DOUBLE, time.time()) + _field(2, _VARINT, step) + _field(5, _BYTES, summary))

    def _write(self, data: bytes) -> None:
        if self._file is None:
            return
        length = struct.pack("<Q", len(data))
        record = length + struct.pack("<I", _masked_crc(length)) + data + struct.pack("<I", _masked_crc(data))
        self._file.write(record)
        self._file.flush()


def _field(number: int, kind: int, value: float | bytes) -> bytes:
    """Return one field of a protobuf message."""
    key = _varint(number << 3 | kind)
    if isinstance(value, bytes):
        return key + _varint(len(value)) + value
    if kind == _VARINT:
        return key + _varint(int(value))
    return key + struct.pack("<d" if kind == _DOUBLE else "<f", value)


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


@cache
def _table() -> tuple[int, ...]:
    entries: list[int] = []
    for entry in range(256):
        for _ in range(8):
            entry = entry >> 1 ^ (_POLYNOMIAL if entry & 1 else 0)
        entries.append(entry)
    return tuple(entries)


def _masked_crc(data: bytes) -> int:
    """Return the masked CRC-32C of `data`, rotated and shifted as the format requires."""
    table, crc = _table(), 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ table[(crc ^ byte) & 0xFF]
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + _MASK) & 0xFFFFFFFF
