"""Samples from tables of other libraries, folders of images and sounds, and arrays in files."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from PIL import Image

import volumetric
from volumetric.base.errors import CheckpointError, SpecError, UnsupportedError, VolumetricError
from volumetric.train import TrainConfig, load_samples, train
from volumetric.train.data import as_data
from volumetric.train.image_folders import read_image
from volumetric.train.load_samples import read_npy
from volumetric.train.settings import DataSettings, RunSettings
from volumetric.train.sources import open_samples
from volumetric.train.table_objects import read_table_object


def settings(home: Path, **data: Any) -> RunSettings:
    return RunSettings(home=home, data=DataSettings(**data))


def installed(name: str) -> bool:
    return importlib.util.find_spec(name) is not None


# -- tables ----------------------------------------------------------------------------------------------------------


class Column:
    """A column as those of pandas and polars: it becomes an array."""

    def __init__(self, values: Any) -> None:
        self.values = values

    def to_numpy(self) -> Any:
        return np.asarray(self.values)


class Frame:
    """What is used of a DataFrame: names of columns, and columns by name."""

    def __init__(self, **columns: Any) -> None:
        self._values = {name: Column(values) for name, values in columns.items()}
        self.columns, self.dtypes = list(columns), None

    def __len__(self) -> int:
        return len(self._values)

    def __getitem__(self, name: str, /) -> Column:
        return self._values[name]


class FrameWithArray(Frame):
    """As pandas': an array too, but not one without targets."""

    def __array__(self) -> Any:
        raise AssertionError("read by columns")


class Dataset:
    """What is used of a dataset of Hugging Face: features, a format, and all rows."""

    def __init__(self, features: dict[str, Any], **columns: Any) -> None:
        self.features, self._columns = features, columns
        self.column_names = list(columns)

    def with_format(self, kind: str) -> Dataset:
        assert kind == "numpy"
        return self

    def __getitem__(self, rows: slice) -> dict[str, Any]:
        assert rows == slice(None)
        return self._columns


class ClassLabel(SimpleNamespace):
    names: tuple[str, ...]


class ImageFeature:
    """Named Image in the library."""


ImageFeature.__name__ = "Image"


def test_a_frame_with_texts_as_its_last_column_has_classes() -> None:
    problem = load_samples(Frame(a=[1, 2, 3], b=[0.5, 1.5, 2.5], kind=np.array(["x", "y", "x"], object)))
    np.testing.assert_array_equal(problem.inputs, [[1, 0.5], [2, 1.5], [3, 2.5]])
    assert (problem.classes, problem.targets.tolist(), problem.features) == (("x", "y"), [0, 1, 0], ("a", "b"))
    values = load_samples(Frame(a=[1, 2], b=[3, 4]), targets="a")
    assert (values.classes, values.targets.tolist(), values.features) == ((), [[1], [2]], ("b",))
    assert load_samples(Frame(a=[1, 2], b=[3, 5]), classes=True).classes == ("3", "5")


def test_a_model_chooses_the_columns_of_a_table_by_name(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((2, 30)).astype(np.float32)
    kinds = np.where(a > 3 * b, "x", "y").astype(object)
    result = train(volumetric.sequential(2, 4, 2), Frame(a=a, b=b, kind=kinds), epochs=3, lr=0.1, device="reference")
    assert result.classes == ("x", "y")  # their loss is a cross entropy, as in files
    rows = result.predict(np.stack([a, b], axis=1))
    assert np.array_equal(result.predict(Frame(kind=kinds, b=b, a=a)), rows)
    result.save(tmp_path / "model")
    model = volumetric.load(tmp_path / "model", device="reference")
    assert np.array_equal(model.predict(Frame(b=b, a=a)), model.predict(np.stack([a, b], axis=1)))
    with pytest.raises(SpecError, match="no column 'b'"):
        model.predict(Frame(a=a))


def test_a_column_that_occurs_twice_is_refused() -> None:
    frame = Frame(a=[1, 2], y=[3, 4])
    frame.columns = ["a", "a", "y"]
    with pytest.raises(SpecError, match="two columns 'a'"):
        load_samples(frame)


def test_a_dataset_keeps_the_names_of_its_classes() -> None:
    images = np.random.default_rng(0).integers(256, size=(4, 6, 5, 3)).astype(np.uint8)
    features = {"image": ImageFeature(), "label": ClassLabel(names=["cat", "dog", "owl"])}
    problem = load_samples(Dataset(features, image=images, label=np.array([2, 0, 0, 1])))
    assert (problem.classes, problem.targets.tolist(), problem.shape) == (
        ("cat", "dog", "owl"),
        [2, 0, 0, 1],
        (3, 6, 5),
    )
    np.testing.assert_allclose(problem.inputs, np.moveaxis(images, -1, 1) / 255, atol=1e-7)
    audio = np.empty(2, object)
    audio[:] = [{"array": np.ones(4), "sampling_rate": 8}, {"array": np.zeros(4), "sampling_rate": 8}]
    sounds = load_samples(Dataset({}, audio=audio, label=np.array([0.5, 1.0])))
    assert (sounds.inputs.shape, sounds.classes) == ((2, 4), ())


def ragged(*items: Any) -> np.ndarray:
    array = np.empty(len(items), object)
    array[:] = items
    return array


@pytest.mark.parametrize(
    ("source", "options", "message"),
    [
        (Frame(a=[1.0, np.nan], y=[1, 2]), {}, "row 1, column 'a' is not finite"),
        (Frame(a=np.array(["u", "v"], object), y=[1, 2]), {}, "column 'a' is no column of numbers: 'u'"),
        (Frame(a=[1, 2], y=[1, 2]), {"targets": "z"}, "has no column 'z'; its columns are a, y"),
        (Frame(y=[1, 2]), {}, "no columns other than the targets"),
        (Frame(a=[], y=[]), {}, "no samples"),
        (Frame(a=[1, 2], y=[1.5, 2.5]), {"classes": True}, "column 'y' has no classes"),
        (Frame(a=[1, 2], y=["p", "q"]), {"known": ("p", "r")}, "class 'q' is not in the training data"),
        (Frame(a=ragged([1], [1, 2]), y=[1, 2]), {}, "unequal shapes"),
        (Frame(a=ragged(None, 1), y=[1, 2]), {}, "row 0, column 'a' has no value"),
        (Frame(a=np.zeros((2, 3)), b=[1, 2], y=[1, 2]), {}, "cannot stand beside"),
        (
            Dataset({"y": ClassLabel(names=["u"])}, a=np.ones(2), y=np.array([0, 1])),
            {},
            "the class 1, which has no name",
        ),
        ({"train": Dataset({}, a=np.ones(1))}, {}, "several splits: 'train'"),
        (3, {}, "cannot read samples from int"),
    ],
)
def test_tables_that_hold_no_samples_are_named(source: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(VolumetricError, match=message) as caught:
        load_samples(source, **options)
    assert caught.value.hint


def test_train_takes_a_frame(rng: np.random.Generator) -> None:
    from volumetric.builders import sequential

    x = rng.standard_normal((40, 2))
    signs = np.where(x[:, 0] > 0, "plus", "minus").astype(object)
    frame = Frame(a=x[:, 0], b=x[:, 1], sign=signs)
    data = as_data(frame)
    assert [*data.describe()["crc32"]] == [*as_data(load_samples(frame)).describe()["crc32"]]
    from volumetric import initialise
    from volumetric.train import AdamW, CrossEntropy

    network = sequential(2, 2, hidden=(4,))
    config = TrainConfig(epochs=30, loss=CrossEntropy(), optimiser=AdamW(lr=0.05), accuracy=True)
    result = train(network, initialise(network), frame, config, device="reference")
    assert result.history[-1].loss < 0.2
    assert (result.classes, result.features) == (("minus", "plus"), ("a", "b"))
    assert train(
        network, FrameWithArray(a=x[:, 0], b=x[:, 1], sign=signs), loss="cross_entropy", epochs=1, device="reference"
    ).classes == ("minus", "plus")


@pytest.mark.skipif(not installed("pyarrow"), reason="pyarrow is not installed")
def test_parquet_files(tmp_path: Path) -> None:
    import pyarrow as pa  # pyright: ignore[reportMissingImports]
    import pypa.parquet as parquet  # pyright: ignore[reportMissingImports]

    kinds = pa.array(["u", "v", "u"])
    table = pa.table({"a": [1, 2, 3], "b": [0.5, 1.5, 2.5], "kind": kinds, "code": kinds.dictionary_encode()})
    parquet.write_table(table, tmp_path / "t.parquet")
    problem = load_samples(tmp_path / "t.parquet", targets="kind", features=("a", "b"))
    assert (problem.inputs.tolist(), problem.classes) == ([[1, 0.5], [2, 1.5], [3, 2.5]], ("u", "v"))
    parquet.write_table(table.select(["a", "b", "kind"]), tmp_path / "s.parquet")
    assert open_samples(settings(tmp_path, parquet="s.parquet", classes=True)).problem.classes == ("u", "v")
    assert load_samples(table, targets="code", features=("b",)).classes == ("u", "v")
    (tmp_path / "bad.parquet").write_bytes(b"PAR1 no")
    with pytest.raises(CheckpointError, match=r"bad.parquet"):
        load_samples(tmp_path / "bad.parquet")


@pytest.mark.skipif(installed("pyarrow"), reason="pyarrow is installed")
def test_parquet_without_pyarrow_says_what_to_install(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match="need pyarrow") as caught:
        load_samples(tmp_path / "t.parquet")
    assert "pip install" in (caught.value.hint or "")


@pytest.mark.skipif(not installed("pandas"), reason="pandas is not installed")
def test_pandas() -> None:
    import pandas as pd  # pyright: ignore[reportMissingImports]

    frame = pd.DataFrame({"a": [1, 2, 3], "kind": pd.Categorical(["v", "u", "v"], categories=["v", "u"])})
    problem = load_samples(frame)
    assert (problem.classes, problem.targets.tolist(), problem.inputs.tolist()) == (
        ("v", "u"),
        [0, 1, 0],
        [[1], [2], [3]],
    )
    assert load_samples(frame.assign(kind=["p", "q", "p"])).classes == ("p", "q")
    with pytest.raises(SpecError, match="without a category"):
        load_samples(pd.DataFrame({"a": [1, 2], "kind": pd.Categorical(["u", None])}))


@pytest.mark.skipif(not installed("polars"), reason="polars is not installed")
def test_polars() -> None:
    import polars as pl  # pyright: ignore[reportMissingImports]

    problem = load_samples(pl.DataFrame({"a": [1, 2], "b": [3.0, 4.0], "kind": ["u", "v"]}))
    assert (problem.classes, problem.inputs.tolist()) == (("u", "v"), [[1, 3], [2, 4]])


@pytest.mark.filterwarnings("ignore")  # those of the library, which hashes with dill
@pytest.mark.skipif(not installed("datasets"), reason="datasets is not installed")
def test_datasets() -> None:
    import datasets  # pyright: ignore[reportMissingImports]

    features = datasets.Features(
        {"x": datasets.Sequence(datasets.Value("float32"), length=3), "label": datasets.ClassLabel(names=["no", "yes"])}
    )
    data = datasets.Dataset.from_dict({"x": [[1, 2, 3], [4, 5, 6]], "label": [1, 0]}, features=features)
    problem = load_samples(data)
    assert (problem.classes, problem.targets.tolist()) == (("no", "yes"), [1, 0])
    assert problem.inputs.tolist() == [[1, 2, 3], [4, 5, 6]]
    pictures = [Image.fromarray(np.full((4, 5, 3), 51 * i, np.uint8)) for i in range(2)]
    images = datasets.Dataset.from_dict({"image": pictures, "label": [0, 1]})
    images = images.cast_column("image", datasets.Image())
    shown = load_samples(images, classes=True)
    assert shown.shape == (3, 4, 5)
    np.testing.assert_allclose(shown.inputs[1], 0.2, atol=1e-6)
    with pytest.raises(SpecError, match="several splits"):
        load_samples(datasets.DatasetDict(train=data))


# -- images ----------------------------------------------------------------------------------------------------------


def draw(path: Path, pixels: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.asarray(pixels, np.uint8)).save(path)
    return path


def test_images_by_class(tmp_path: Path) -> None:
    for name, level in (("night", 51), ("day", 204)):
        draw(tmp_path / f"pics/{name}/1.png", np.full((4, 6, 3), level))
        draw(tmp_path / f"pics/{name}/deeper/2.png", np.full((8, 12, 3), level))
    (tmp_path / "pics/night/notes.txt").write_text("not an image")
    (tmp_path / "pics/.cache").mkdir()
    samples = open_samples(settings(tmp_path, images="pics", size=(2, 3), channels=1))
    assert samples.problem.classes == ("day", "night")
    assert samples.problem.shape == (1, 2, 3)
    np.testing.assert_allclose(samples.problem.inputs[:, 0, 0, 0], [0.8, 0.8, 0.2, 0.2], atol=0.01)
    assert samples.problem.targets.tolist() == [0, 0, 1, 1]
    assert load_samples(tmp_path / "pics", size=(4, 4)).shape == (3, 4, 4)
    with pytest.raises(SpecError, match=r"8 × 12 pixels.*4 × 6") as caught:
        load_samples(tmp_path / "pics")
    assert "size" in (caught.value.hint or "")
    with pytest.raises(SpecError, match="class 'day' is not in the training data"):
        load_samples(tmp_path / "pics", known=("night",))


def test_the_places_of_pixels(tmp_path: Path) -> None:
    pixels = np.random.default_rng(1).integers(256, size=(3, 2, 4))
    for channels, mode in ((3, "RGB"), (4, "RGBA")):
        path = tmp_path / f"{mode}.png"
        Image.fromarray(pixels[..., :channels].astype(np.uint8), mode).save(path)
        np.testing.assert_allclose(
            read_image(path, (), channels), np.moveaxis(pixels[..., :channels], -1, 0) / 255, atol=1e-7
        )


@pytest.mark.parametrize("content", [b"", b"no image", b"\x89PNG\r\n\x1a\n" + bytes(40), None])
def test_files_that_are_no_images(content: bytes | None, tmp_path: Path) -> None:
    path = tmp_path / "x.png"
    if content is None:
        whole = draw(path, np.random.default_rng(0).integers(256, size=(30, 30, 3))).read_bytes()
        content = whole[: len(whole) // 2]
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match="no image that Pillow can read"):
        read_image(path)


def test_an_image_of_too_many_pixels_is_not_decoded(tmp_path: Path) -> None:
    path = tmp_path / "x.ppm"
    path.write_bytes(b"P6 60000 60000 255\n")
    with pytest.raises(CheckpointError, match=r"pixels|no image"):
        read_image(path)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"images": "empty"}, "no folder with images"),
        ({"images": "absent"}, "cannot read"),
        ({"audio": "empty"}, "WAV files"),
    ],
)
def test_folders_without_files(options: dict[str, Any], message: str, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(CheckpointError, match=message) as caught:
        open_samples(settings(tmp_path, **options))
    assert caught.value.hint


# -- arrays ----------------------------------------------------------------------------------------------------------


def test_npy_files(tmp_path: Path, rng: np.random.Generator) -> None:
    x, y = rng.standard_normal((6, 3)), np.array([0, 1, 1, 0, 2, 2])
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "y.npy", y)
    samples = open_samples(settings(tmp_path, npy={"inputs": "x.npy", "targets": "y.npy"}, validation=0.5))
    assert (samples.problem.classes, len(samples.data)) == (("0", "1", "2"), 3)
    with pytest.raises(SpecError, match="npy names files"):
        settings(tmp_path, npy={"inputs": "x.npy"})
    whole = (tmp_path / "x.npy").read_bytes()
    np.save(tmp_path / "objects.npy", np.array([{}], object))
    for cut, content in enumerate((whole[:60], whole[:-8], b"", b"text", (tmp_path / "objects.npy").read_bytes())):
        (tmp_path / f"{cut}.npy").write_bytes(content)
        with pytest.raises(CheckpointError, match=r"no whole .npy file"):
            read_npy(tmp_path / f"{cut}.npy")


def test_only_one_source(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"images|audio"):
        settings(tmp_path, images="a", audio="b")
    (tmp_path / "x.xyz").write_text("")
    for path, message in (("x.xyz", "not read from .xyz"), ("absent.csv", "cannot read"), ("absent", "no such file")):
        with pytest.raises(VolumetricError, match=message):
            as_data(tmp_path / path)


def test_a_table_of_nothing() -> None:
    assert len(read_table_object(Frame())) == 0
