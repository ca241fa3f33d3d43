"""Quantised checkpoints of Hugging Face: decoded, they are bit for bit what the libraries of their formats decode."""

from __future__ import annotations

import hashlib
import json
import logging
import shutil
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from volumetric.base.errors import CheckpointError, UnsupportedError
from volumetric.devices.reference_device import ReferenceDevice
from volumetric.dtypes import decode
from volumetric.loaders import open_model
from volumetric.loaders.convert_model import convert_model
from volumetric.loaders.hf_config import Config
from volumetric.loaders.quantised import unpack_weights
from volumetric.loaders.quantised.bitsandbytes import _MAX_STATE
from volumetric.loaders.safetensors import SafetensorsFile
from volumetric.loaders.safetensors_write import array_out, write_safetensors
from volumetric.loaders.tensor_source import TensorSource
from volumetric.run.lower import lower

HOME = Path(__file__).parents[1] / "fixtures" / "quantised"
PACKED = {
    "gptq_sym_g32": "int4:g32",
    "gptq_asym_g64_v2": "int8:g64",
    "gptq_8bit_row": "int8:row",
    "gptq_2bit_g32": "int4:g32",
    "awq_g64": "int8:g64",
    "ct_int4_g32": "int4:g32",
    "ct_int4_asym": "int8:g64",
    "ct_int8_row": "int8:row",
    "ct_int8_packed_asym": "uint8:row:float32",
    "ct_float8_tensor": "float8_e4m3fn:row:bfloat16",
    "fp8_row": "float8_e4m3fn:row",
    "fp8_block": "float8_e4m3fn:g128",
    "mlx_4bit_g64": "uint4:g64",
    "mlx_3bit_g32": "uint4:g32",
    "mlx_mxfp4": "mxfp4",
    "mlx_nvfp4": "float4_e2m1fn:g16",
    "mlx_mxfp8": "float8_e4m3fn:g32",
    "bnb_int8": "int8:row:float32",
}
DECODED = {"gptq_asym_order": "float16", "bnb_nf4_double": "bfloat16", "bnb_fp4": "float16"}
IDS = np.arange(3, 19, dtype=np.int32)


def source_of(home: Path) -> TensorSource:
    files = SafetensorsFile(home / "model.safetensors")
    return unpack_weights(Config(json.loads((home / "config.json").read_text()), "config.json"), files)[1]


def digest(values: np.ndarray) -> str:
    return hashlib.sha256(np.ascontiguousarray(values).tobytes()).hexdigest()


@pytest.mark.parametrize(("name", "scheme"), (PACKED | DECODED).items())
def test_values_are_those_of_the_library(name: str, scheme: str) -> None:
    source = source_of(HOME / name)
    record: dict[str, Any] = json.loads((HOME / name / "expected.json").read_text())
    assert record["weights"]
    for weight, expected in record["weights"].items():
        own = "uint8:g64" if name == "mlx_4bit_g64" and "down_proj" in weight else scheme
        own = "uint8:g32" if name == "mlx_3bit_g32" and "down_proj" in weight else own
        own = "uint8:g64" if "fp" in name and name.startswith("mlx") and "down_proj" in weight else own
        own = own.replace("g64", "row") if name == "ct_int4_asym" and "down_proj" not in weight else own  # rows of 64
        assert str(source.scheme(weight)) == own, weight
        # The library rounds the exact product once, to the type that it decodes to.
        values = decode(source.packed(weight), np.dtype(expected["dtype"]))
        assert digest(values) == expected["sha256"], (weight, record["library"])


@pytest.mark.parametrize("name", PACKED | DECODED)
def test_rows_are_read_for_themselves(name: str) -> None:
    source = source_of(HOME / name)
    for weight in ("model.layers.0.mlp.gate_proj.weight", "model.layers.0.mlp.down_proj.weight"):
        whole = decode(source.packed(weight))
        for start, stop in ((0, 1), (3, 30), (5, 5), (len(whole) - 7, len(whole))):
            np.testing.assert_array_equal(decode(source.packed_rows(weight, start, stop)), whole[start:stop])


@pytest.mark.thorough
@pytest.mark.parametrize("name", PACKED | DECODED)
def test_models_run_and_are_written_again(name: str, tmp_path: Path) -> None:
    model = open_model(str(HOME / name))
    logits = [run(model)]
    convert_model(str(HOME / name), tmp_path / "native")
    convert_model(str(HOME / name), tmp_path / "hf", format="hf")
    for target in ("native", "hf"):
        logits.append(run(open_model(str(tmp_path / target))))
        np.testing.assert_array_equal(logits[0], logits[-1])
    assert np.isfinite(logits[0]).all()


def run(model: Any) -> np.ndarray:
    compiled = ReferenceDevice().compile(lower(model.network), model.params)
    return compiled.forward(compiled.new_state(), IDS, last_only=False)


@pytest.mark.parametrize("name", DECODED)
def test_what_is_decoded_is_told(name: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        open_model(str(HOME / name))
    assert DECODED[name] in caplog.text or "floats" in caplog.text
    assert "int4:g32" in caplog.text


def changed(name: str, home: Path, settings: dict[str, Any] | None = None, change: Any = None) -> Path:
    """Copy of a fixture with some settings or tensors changed."""
    target = home / name
    shutil.copytree(HOME / name, target)
    config = json.loads((target / "config.json").read_text())
    config["quantization" if name.startswith("mlx") else "quantization_config"].update(settings or {})
    (target / "config.json").write_text(json.dumps(config))
    if change is not None:
        file = SafetensorsFile(target / "model.safetensors")
        tensors = {key: file.array(key).copy() for key in file.entries}
        change(tensors)
        write_safetensors(target / "model.safetensors", {key: array_out(value) for key, value in tensors.items()})
    return target


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("gptq_sym_g32", {"quant_method": "aqlm"}, "quantised by aqlm, which is not supported"),
        ("gptq_sym_g32", {"quant_method": None}, "a method without a name"),
        ("gptq_sym_g32", {"bits": 3}, "GPTQ of 3 bits"),
        ("gptq_sym_g32", {"checkpoint_format": "marlin"}, "checkpoint_format='marlin'"),
        ("awq_g64", {"version": "gemv"}, "version='gemv'"),
        ("ct_int4_g32", {"format": "nvfp4-pack-quantized"}, "nvfp4-pack-quantized is not supported"),
        ("ct_int4_g32", {"sparsity_config": {"format": "sparse-24-bitmask"}}, "sparse-24-bitmask"),
    ],
)
def test_what_is_not_read_is_named(name: str, settings: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match=message) as caught:
        open_model(str(changed(name, tmp_path, settings)))
    assert caught.value.hint


LAYER = "model.layers.0.self_attn.q_proj"


def regrouped(tensors: dict[str, np.ndarray], groups: int) -> None:
    """Give a matrix so many groups a row."""
    name = f"{LAYER}.weight_scale"
    tensors[name] = np.ones((len(tensors[name]), groups), tensors[name].dtype)


@pytest.mark.parametrize(
    ("name", "settings", "change", "message"),
    [
        ("gptq_sym_g32", {"group_size": 0}, None, "group_size"),
        ("gptq_sym_g32", {"group_size": 16}, None, "scales' has shape"),
        ("gptq_sym_g32", {}, lambda t: t.pop(f"{LAYER}.qzeros"), "lack tensor"),
        ("gptq_sym_g32", {}, lambda t: t.pop(f"{LAYER}.qweight"), "missing"),
        ("gptq_asym_order", {}, lambda t: t[f"{LAYER}.g_idx"].__setitem__(3, 2), "has groups outside 0 … 1"),
        ("gptq_asym_order", {}, lambda t: t[f"{LAYER}.g_idx"].__setitem__(3, -1), "has groups outside 0 … 1"),
        ("awq_g64", {"group_size": 48}, None, "scales' has shape"),
        ("ct_int4_g32", {}, lambda t: t[f"{LAYER}.weight_shape"].__setitem__(1, 99), "words in a row"),
        ("ct_int4_g32", {}, lambda t: t[f"{LAYER}.weight_shape"].__setitem__(0, 3), "has the shape"),
        ("ct_int4_g32", {}, lambda t: regrouped(t, 3), "3 scales for rows of 64"),
        ("ct_int4_g32", {}, lambda t: regrouped(t, 0), "0 scales for rows of 64"),
        ("fp8_block", {"weight_block_size": [64, 64]}, None, "has shape"),
        ("fp8_block", {"weight_block_size": [0, 64]}, None, "two sizes above 0"),
        (
            "bnb_fp4",
            {},
            lambda t: t[f"{LAYER}.weight.quant_state.bitsandbytes__fp4"].fill(7),
            "not a short JSON object",
        ),
    ],
)
def test_damaged_checkpoints_are_named(
    name: str, settings: dict[str, Any], change: Any, message: str, tmp_path: Path
) -> None:
    with pytest.raises(CheckpointError, match=message):
        open_model(str(changed(name, tmp_path, settings, change)))


def test_rows_of_an_odd_width_begin_within_a_byte(tmp_path: Path) -> None:
    codes, name = np.arange(15) % 16, f"{LAYER}.weight"
    table = np.linspace(-1, 1, 16, dtype=np.float32)

    def narrow(tensors: dict[str, np.ndarray]) -> None:
        state = {"quant_type": "fp4", "blocksize": 64, "dtype": "float16", "shape": [3, 5]}
        text = np.frombuffer(json.dumps(state).encode(), np.uint8)
        padded = np.append(codes, 0).astype(np.uint8)
        parts = {"": padded[::2] << 4 | padded[1::2], ".absmax": np.ones(1, np.float32), ".quant_map": table}
        tensors |= {f"{name}{part}": value for part, value in parts.items()}
        tensors[f"{name}.quant_state.bitsandbytes__fp4"] = text

    source = source_of(changed("bnb_fp4", tmp_path, None, narrow))
    want = table.astype(np.float16)[codes].reshape(3, 5).astype(np.float32)
    for start in range(3):
        for stop in range(start + 1, 4):
            np.testing.assert_array_equal(decode(source.packed_rows(name, start, stop)), want[start:stop])


def test_modules_have_widths_of_their_own(tmp_path: Path) -> None:
    other = SafetensorsFile(HOME / "gptq_8bit_row" / "model.safetensors")
    eight = "model.layers.0.mlp.down_proj"

    def change(tensors: dict[str, np.ndarray]) -> None:
        tensors |= {name: other.array(name).copy() for name in other.entries if name.startswith(eight)}

    dynamic = {"-:lm_head": {}, r"+:.*\.down_proj": {"bits": 8, "group_size": -1}, ".*up_proj": {"bits": 8}}
    target = changed("gptq_sym_g32", tmp_path, {"dynamic": dynamic}, change)
    source = source_of(target)
    for weight, width in (("mlp.down_proj", "int8:row"), ("mlp.gate_proj", "int4:g32")):
        name = f"model.layers.0.{weight}.weight"
        record = json.loads(
            (HOME / ("gptq_8bit_row" if "8" in width else "gptq_sym_g32") / "expected.json").read_text()
        )
        expected = record["weights"][name]
        assert str(source.scheme(name)) == width
        assert digest(decode(source.packed(name), np.dtype(expected["dtype"]))) == expected["sha256"]
    with pytest.raises(UnsupportedError, match=r"dynamic: \.\*: GPTQ of 3 bits"):
        open_model(changed("gptq_sym_g32", tmp_path / "three", {"dynamic": {".*": {"bits": 3}}}))


@pytest.mark.parametrize(
    ("name", "settings", "change", "message"),
    [
        ("mlx_mxfp4", {"bits": 8}, None, r"are \(8, 32\), expected \(4, 32\) in this mode"),
        ("mlx_mxfp8", {"mode": "mxfp4"}, None, r"are \(8, 32\), expected \(4, 32\) in this mode"),
        ("mlx_nvfp4", {}, lambda t: t.__setitem__(f"{LAYER}.scales", np.ones((64, 3), np.uint8)), "has shape"),
        ("mlx_nvfp4", {}, lambda t: t.pop(f"{LAYER}.weight"), "lack tensor"),
    ],
)
def test_damaged_floats_of_mlx_are_named(
    name: str, settings: dict[str, Any], change: Any, message: str, tmp_path: Path
) -> None:
    with pytest.raises(CheckpointError, match=message):
        open_model(changed(name, tmp_path, settings, change))


def test_groups_by_activation_order_of_compressed_tensors(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    index = rng.permutation(np.arange(64) // 32).astype(np.int32)

    def add(tensors: dict[str, np.ndarray]) -> None:
        tensors[f"{LAYER}.weight_g_idx"] = index

    plain, ordered = (source_of(home) for home in (HOME / "ct_int4_g32", changed("ct_int4_g32", tmp_path, None, add)))
    packed = plain.packed(f"{LAYER}.weight")
    assert packed.scales is not None
    expected = packed.codes().astype(np.float32) * packed.scales.astype(np.float32)[:, index]
    found = ordered.packed(f"{LAYER}.weight")
    assert str(found.scheme) == "bfloat16"
    np.testing.assert_array_equal(decode(found), expected.astype(ml_dtypes.bfloat16).astype(np.float32))


def test_scales_are_of_every_row(tmp_path: Path) -> None:
    def longer(tensors: dict[str, np.ndarray]) -> None:
        name = f"{LAYER}.weight_scale"
        tensors[name] = np.concatenate([tensors[name], tensors[name][:1]])

    with pytest.raises(CheckpointError, match=r"weight_scale' has shape"):
        open_model(str(changed("ct_int4_g32", tmp_path, {}, longer)))


@pytest.mark.parametrize("longer", [0, 1])
def test_descriptions_have_a_length_that_is_read(longer: int, tmp_path: Path) -> None:
    """The longest that is read, and one character more."""

    def pad(tensors: dict[str, np.ndarray]) -> None:
        for name in [name for name in tensors if "quant_state" in name]:
            text = tensors[name].tobytes().ljust(_MAX_STATE + longer)
            tensors[name] = np.frombuffer(text, np.uint8)

    target = changed("bnb_fp4", tmp_path, {}, pad)
    if not longer:
        plain = source_of(HOME / "bnb_fp4").packed(f"{LAYER}.weight")
        np.testing.assert_array_equal(decode(source_of(target).packed(f"{LAYER}.weight")), decode(plain))
    else:
        with pytest.raises(CheckpointError, match="not a short JSON object"):
            open_model(str(target))
