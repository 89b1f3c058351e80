"""Thousands of generated tables: each is read to exactly its transitions, or refused by one error that names the fault.

A few hundred of them run by default, all with ``-m slow``.
"""

import contextlib
import warnings

import numpy as np
import pytest

pytest.importorskip("pyarrow")
pytest.importorskip("pandas")
pytest.importorskip("polars")

import table_cases
import table_disguises
import table_faults
import table_file_faults
from table_cases import FORMS, MAPPING, TYPED, sound, true_transitions
from vem.data.load import load
from vem.errors import DataError, DataWarning, VemError

FEW, MANY = 1, 12
pytestmark = pytest.mark.filterwarnings("ignore::vem.errors.DataWarning")
sizes = pytest.mark.parametrize("count", [FEW, pytest.param(MANY, marks=pytest.mark.slow)])


def generator(*seed):
    return np.random.default_rng([sum(map(ord, part)) if isinstance(part, str) else part for part in seed])


def places(tmp_path, count):
    """A folder for each of the cases."""
    for number in range(count):
        place = tmp_path / str(number)
        place.mkdir()
        yield number, place


def check_refusal(error, refused, form, order=None):
    """The error names the column and the row, in one sentence or two."""
    text = str(error)
    assert len(text) < 900, text
    assert refused.column is None or f"'{refused.column}'" in text or f".{refused.column}" in text, text
    if refused.row is not None:
        row = refused.row if order is None else int(np.argmax(order == refused.row))
        assert "folder" in form or f"row {row} " in text + " " or f"row {row};" in text or f"row {row}," in text, text


def read_quietly(*arguments, **options):
    """What is read; other warnings than those about data are errors."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)
        return load(*arguments, **options)


@sizes
@pytest.mark.parametrize("form", FORMS)
def test_sound_tables_come_back_exactly(form, count, tmp_path):
    for number, place in places(tmp_path, 4 * count):
        random = generator(form, number)
        columns = table_cases.with_ends(random, sound(random))
        mixed, _ = table_cases.shuffled(random, columns)
        if expected := true_transitions(columns):
            assert table_cases.read_transitions(FORMS[form](mixed, place, MAPPING)) == expected


@sizes
@pytest.mark.parametrize("form", FORMS)
def test_disguised_tables_come_back_exactly(form, count, tmp_path):
    ways = table_disguises.SAME + (table_disguises.TYPED_SAME if form in TYPED else ())
    ways = [way for way in ways if way not in table_disguises.NOT_IN.get(form, ())]
    for number, place in places(tmp_path, count * len(ways)):
        random = generator(form, number)
        columns = table_cases.with_ends(random, sound(random))
        columns["done"][0] = True  # at least one transition
        mixed, _ = table_cases.shuffled(random, columns)
        dataset = FORMS[form](ways[number % len(ways)](mixed), place, MAPPING)
        assert table_cases.read_transitions(dataset) == true_transitions(columns), ways[number % len(ways)].__name__


@sizes
@pytest.mark.parametrize("way", table_disguises.SAME_TEXT)
def test_unusual_text_comes_back_exactly(way, count, tmp_path):
    for number, place in places(tmp_path, 3 * count):
        columns = sound(generator(way, number))
        text = table_disguises.SAME_TEXT[way](columns)
        (place / "log.csv").write_bytes(text.encode())
        dataset = read_quietly(place / "log.csv", mapping=MAPPING)
        assert table_cases.read_transitions(dataset) == true_transitions(columns)


@sizes
@pytest.mark.parametrize("way", table_faults.WAYS + table_faults.TYPED_WAYS, ids=lambda way: way.__name__)
def test_malformed_tables_are_refused(way, count, tmp_path):
    forms = [*TYPED] if way in table_faults.TYPED_WAYS else [*FORMS]
    forms = ["dict", "arrow", "parquet"] if way is table_faults.time_of_day else forms
    for number, place in places(tmp_path, len(forms) * count):
        form, random = forms[number % len(forms)], generator(way.__name__, number)
        columns = sound(random)
        refused, order = way(random, columns), None
        if refused.row is not None and random.integers(2):  # the error names the row of the table, not of the result
            columns, order = table_cases.shuffled(random, columns)
        with pytest.raises(VemError) as caught:
            FORMS[form](columns, place, refused.mapping)
        check_refusal(caught.value, refused, form, order)


@sizes
@pytest.mark.parametrize("way", table_faults.FRAME_WAYS, ids=lambda way: way.__name__)
def test_malformed_columns_are_refused(way, count, tmp_path):
    for number in range(20 * count):
        random = generator(way.__name__, number)
        columns = sound(random)
        refused = way(random, columns)
        with pytest.raises(DataError) as caught:
            FORMS["dict"](columns, tmp_path, MAPPING)
        check_refusal(caught.value, refused, "dict")


@sizes
@pytest.mark.parametrize("way", table_file_faults.TEXT_FAULTS, ids=lambda way: way.__name__)
def test_text_that_is_no_table_is_refused(way, count, tmp_path):
    for number, place in places(tmp_path, 5 * count):
        random = generator(way.__name__, number)
        content, refused = way(random, sound(random))
        (place / "log.csv").write_bytes(content)
        with pytest.raises(DataError, match=r"log\.csv") as caught:
            read_quietly(place / "log.csv", mapping=MAPPING)
        check_refusal(caught.value, refused, "csv")


@sizes
@pytest.mark.parametrize("way", table_file_faults.FOLDER_FAULTS, ids=lambda way: way.__name__)
def test_folders_whose_files_differ_are_refused(way, count, tmp_path):
    for number, place in places(tmp_path, 5 * count):
        random = generator(way.__name__, number)
        parts, refused = way(random, sound(random))
        with pytest.raises(DataError) as caught:
            read_quietly(table_file_faults.write_folder(parts, place), mapping=MAPPING)
        check_refusal(caught.value, refused, "folder")


@sizes
@pytest.mark.parametrize("suffix", [".parquet", ".feather", ".arrow", ".csv.gz"])
def test_cut_files_are_refused(suffix, count, tmp_path):
    for number in range(8 * count):
        random = generator(suffix, number)
        content = table_file_faults.file_bytes(sound(random))[suffix]
        (tmp_path / f"case{suffix}").write_bytes(content[: random.integers(len(content) - 8)])
        with pytest.raises(DataError, match=r"case\."):
            read_quietly(tmp_path / f"case{suffix}", mapping=MAPPING)


@sizes
@pytest.mark.parametrize("suffix", [".parquet", ".feather", ".arrow", ".csv.gz"])
def test_damaged_files_are_read_or_refused(suffix, count, tmp_path):
    for number in range(10 * count):
        random = generator(suffix, number)
        content = table_file_faults.file_bytes(sound(random))[suffix]
        (tmp_path / f"case{suffix}").write_bytes(table_file_faults.flipped(random, content))
        with contextlib.suppress(VemError):  # any other error, or the end of the process, is a fault
            dataset = read_quietly(tmp_path / f"case{suffix}", mapping=MAPPING)
            assert np.isfinite(dataset.observations).all()
