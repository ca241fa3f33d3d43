"""CSV files with and without a line of names: no row is lost, and none is taken for names in silence."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import pytest

from volumetric.base.errors import CheckpointError, SpecError
from volumetric.train.csv_table import CsvTable, read_csv
from volumetric.train.settings import DataSettings, RunSettings
from volumetric.train.sources import RunSamples, open_samples


def table(folder: Path, text: str, header: bool | None = None) -> CsvTable:
    (folder / "t.csv").write_text(text)
    return read_csv(folder / "t.csv", header)


def samples(folder: Path, text: str, **settings) -> RunSamples:
    (folder / "t.csv").write_text(text)
    return open_samples(RunSettings(home=folder, data=DataSettings(csv="t.csv", **settings)))


@pytest.mark.parametrize(
    ("text", "columns"),
    [
        ("x,y\n1,2\n3,4\n", ("x", "y")),
        (",x,y\n0,1,2\n1,3,4\n", ("", "x", "y")),  # as pandas writes an index
        ("label,1,2\n7,3,4\n8,5,6\n", ("label", "1", "2")),
        ("name,kind\na,b\nc,d\n", ("name", "kind")),
        ("x,y\n1,\n,4\n", ("x", "y")),
        ("\ufeffx,y\r\n1,2\r\n", ("x", "y")),
        ("1,2\n3,4\n", None),
        ("1,2\n", None),
        ("5.1,3.5,setosa\n4.9,3.0,virginica\n", None),  # as the file of the irises is
        ("1e3,-2\nnan,4\n", None),
    ],
)
def test_a_line_of_names_is_told_from_a_row(tmp_path, caplog, text, columns):
    with caplog.at_level(logging.WARNING):
        found = table(tmp_path, text)
    assert (found.header, len(found.rows)) == (columns is not None, text.count("\n") - (columns is not None))
    assert found.columns == (columns or tuple(map(str, range(len(found.columns)))))
    assert ("has no header" in caplog.text) is not found.header


@pytest.mark.parametrize("text", ["0,1,2\n5,6,7\n", "label,0,1\na,3,4\nb,5,6\n"])
def test_a_line_that_may_be_either_is_asked_about(tmp_path, caplog, text):
    with pytest.raises(SpecError, match="may be column names or values") as refused:
        table(tmp_path, text)
    assert "header = true or false" in str(refused.value.hint)
    lines = text.splitlines()
    assert [len(table(tmp_path, text, header).rows) for header in (True, False)] == [len(lines) - 1, len(lines)]
    assert not caplog.records


def test_the_first_row_is_learned_and_columns_are_called_by_position(tmp_path):
    found = samples(tmp_path, "1,2,3\n4,5,6\n").problem
    np.testing.assert_array_equal(found.inputs, [[1, 2], [4, 5]])
    np.testing.assert_array_equal(found.targets, [[3], [6]])
    found = samples(tmp_path, "1,2,3\n4,5,6\n", columns=("0",)).problem
    np.testing.assert_array_equal(found.targets, [[1], [4]])
    assert found.features == ("1", "2")


def test_another_file_of_samples_is_read_by_the_names_of_the_columns(tmp_path):
    (tmp_path / "v.csv").write_text("y,x,z\n2,1,3\n")
    found = samples(tmp_path, "x,y,z\n1,2,3\n", validation="v.csv")
    assert found.validation is not None
    np.testing.assert_array_equal(found.validation.features, [[1, 2]])
    (tmp_path / "v.csv").write_text("q,x,z\n2,1,3\n")
    with pytest.raises(SpecError, match="no column 'y'; its columns are q, x, z"):
        samples(tmp_path, "x,y,z\n1,2,3\n", validation="v.csv")


@pytest.mark.parametrize(
    ("text", "error", "message", "hint"),
    [
        ("", SpecError, "no samples; its columns are none", ""),
        ("x,y\n", SpecError, "no samples; its columns are x, y", ""),
        ("x y\n1 2\n", SpecError, "no columns other than the targets", "commas, semicolons or tabs"),
        ("x;y\n1;2\n3;1.234,5\n", CheckpointError, "line 3, column 'y': '1.234,5' is not a number", ""),
        ("x;y\n1;2\n3;4;5\n", CheckpointError, "line 3 has 3 values, but the first line has 2", '"a; b"'),
        ("x,x\n1,2\n", SpecError, "two columns 'x'", "unique name"),
        ("x,y\n\n1,2\n3,oak\n", CheckpointError, "line 4, column 'y': 'oak' is not a number", "classes = true"),
        ("x,y\n1,2\n,4\n", CheckpointError, "line 3, column 'x': the cell is empty", ""),
        ("x,y\n1,2\ninf,4\n", CheckpointError, "line 3, column 'x' is not finite", ""),
        ("x,y\n1,2\n3\n", CheckpointError, "line 3 has 1 values, but the first line has 2", "quote a value"),
        (
            "x,y,\n1,oak,\n2,ash,\n",
            CheckpointError,
            "last column, number 3, has no name and no values",
            "trailing comma",
        ),
        ("x;y;\n1;2;\n", CheckpointError, "each line ends in a semicolon", "remove the trailing semicolon"),
        ("x,y,\n1,2\n", CheckpointError, "line 2 has 2 values, but the first line has 3", "trailing comma of line 1"),
        ("x,y\n1,2\n3,4,\n", CheckpointError, "line 3 has 3 values", "trailing comma of the line"),
    ],
)
def test_tables_that_cannot_be_learned(tmp_path, text, error, message, hint):
    with pytest.raises(error, match=message) as refused:
        samples(tmp_path, text)
    assert hint in str(refused.value.hint)


@pytest.mark.parametrize(
    "text",
    [
        "x;y\n1;2.5\n3;4\n",
        "x;y\r\n1;2,5\r\n3;4,0\r\n",
        "\ufeffx;y\n1;2,5\n3;4\n",
        "x\ty\n1\t2.5\n3\t4\n",
        '"x";"y"\n"1";"2,5"\n3;4\n',
        'x,y\n1,"2.5"\n3,4\n',
    ],
)
def test_values_are_separated_as_the_first_line_shows(tmp_path, text):
    problem = samples(tmp_path, text).problem
    np.testing.assert_array_equal(problem.inputs, [[1], [3]])
    np.testing.assert_array_equal(problem.targets, [[2.5], [4]])
    assert problem.features == ("x",)


def test_a_comma_in_quotes_of_the_first_line_separates_nothing(tmp_path):
    assert samples(tmp_path, '"x, in m";y\n1;2\n').problem.features == ("x, in m",)


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("x,y\n1,oak\n2,\n", CheckpointError, "line 3, column 'y': the class is missing"),
        ("x,y\n1,oak\n2,  \n", CheckpointError, "line 3, column 'y': the class is missing"),
        (
            "x,y\n" + "".join(f"1,{i}.25\n" for i in range(30)),
            SpecError,
            "column 'y' has 30 different numbers with decimals",
        ),
    ],
)
def test_columns_that_hold_no_classes(tmp_path, text, error, message):
    with pytest.raises(error, match=message):
        samples(tmp_path, text, classes=True)


def test_a_column_without_a_name_is_warned_of(tmp_path, caplog):
    samples(tmp_path, ",x,y\n0,1,2\n1,3,4\n")
    assert "the first column has no name, as the index that pandas writes" in caplog.text


@pytest.mark.parametrize(
    ("text", "which"),
    [
        ("# from the lab\nx,y\n1,2\n", "line 1"),
        ("# from the lab, in m\nx,y\n1,2\n", "line 1"),
        ("# from the lab\nx;y\n1;2\n", "line 1"),
        ("# from the lab\n1\t2\n", "line 1"),
        ("# lab\n\n# a, b, c\n# d\nx,y\n1,2\n", "lines 1 to 4"),
    ],
)
def test_comments_above_the_table_are_to_be_removed(tmp_path, text, which):
    with pytest.raises(CheckpointError, match=f"t.csv: {which} above the table begins? with #, as comments") as refused:
        table(tmp_path, text)
    assert f"remove {which}:" in str(refused.value.hint)


@pytest.mark.parametrize("text", ["#x,y\n1,2\n3,4\n", "#x;y\n1,5;2\n", "x,#y\n1,2\n", "#x,kind\n1,a\n2,b\n"])
def test_a_name_may_begin_with_a_hash(tmp_path, text):
    assert table(tmp_path, text).header


def test_a_column_of_one_class_is_named(tmp_path):
    text = "x,kind\n1,oak\n2,oak\n"
    with pytest.raises(SpecError, match=r"t\.csv: column 'kind' has one class only, 'oak'") as refused:
        samples(tmp_path, text, classes=True)
    assert "samples of another class" in str(refused.value.hint)
    (tmp_path / "v.csv").write_text(text)  # one class is enough to judge with
    assert samples(tmp_path, text + "3,ash\n", classes=True, validation="v.csv").validation is not None


def test_a_trailing_comma_harms_nothing_where_the_columns_are_chosen(tmp_path):
    chosen = table(tmp_path, "x,y,\n1,2,\n3,4,\n")
    np.testing.assert_array_equal(chosen.numbers(chosen.positions(["y", "x"])), [[2, 1], [4, 3]])
