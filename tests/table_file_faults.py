"""Ways to spoil the file of a sound table: text that is no table, damaged bytes, folders whose files differ."""

from __future__ import annotations

import gzip
import io
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet

from table_cases import Columns, csv_text
from table_faults import Refused, one


def _with_line(random, columns: Columns, change) -> tuple[bytes, Refused]:
    """The CSV with one row's line changed."""
    lines = csv_text(columns).splitlines()
    row = int(random.integers(1, len(lines) - 2))
    lines[row + 1] = change(lines[row + 1])
    return "\n".join(lines).encode(), Refused(None, row)


def short_row(random, columns):
    return _with_line(random, columns, lambda line: line.rsplit(",", int(random.integers(1, 4)))[0])


def long_row(random, columns):
    return _with_line(random, columns, lambda line: line + one(random, ",", ",1", ",a,b"))


def open_quote(random, columns):
    noted = {**columns, "note": ["fine"] * len(columns["x"])}
    return _with_line(random, noted, lambda line: line.replace("fine", '"fine'))


def quote_closed_later(random, columns):
    """The rows between two stray quotes would be lost in a note, which nobody maps."""
    text, refused = open_quote(random, columns)
    lines = text.decode().splitlines()
    lines[refused.row + 2] = lines[refused.row + 2].replace("fine", 'fine"')
    return "\n".join(lines).encode(), refused


def odd_number(random, columns):
    row = int(random.integers(1, len(columns["x"]) - 1))
    words = ("1_0", "١", "0x1F", "5%", "−5", "1.2.3", "3\0", "1 000", "1,000", "off")
    name = one(random, "x", "u", "reward")
    columns[name] = [one(random, *words) if other == row else value for other, value in enumerate(columns[name])]
    return csv_text(columns).encode(), Refused(name, row)


def other_encoding(random, columns):
    text = csv_text({**columns, "größe": ["über"] * len(columns["x"])})
    return text.encode(one(random, "utf-16", "utf-16-le", "utf-16-be", "utf-32", "latin-1")), Refused()


def two_columns_of_one_name(random, columns):
    name = one(random, *columns)
    return csv_text({**columns, "twin": columns[name]}).replace("twin", name, 1).encode(), Refused(name)


def no_names(random, columns):
    numbers = {name: columns[name] for name in ("x", "u", "reward")}
    return csv_text(numbers).split("\n", 1)[1].encode(), Refused()


def line_in_front(random, columns):
    return (one(random, "# made by a logger\n", "log of 2024\n") + csv_text(columns)).encode(), Refused(None, 0)


def nothing_but(random, columns):
    names = csv_text(columns).splitlines()[0]
    return one(random, names, names + "\n", "\n\n\n", " ", "\ufeff").encode(), Refused()


TEXT_FAULTS = (
    *(short_row, long_row, open_quote, quote_closed_later, odd_number, other_encoding, two_columns_of_one_name),
    *(no_names, line_in_front, nothing_but),
)


def file_bytes(columns: Columns) -> dict[str, bytes]:
    """The table as the bytes of a file of each kind."""
    table, sinks = pa.table(columns), {name: io.BytesIO() for name in (".parquet", ".feather", ".arrow")}
    pyarrow.parquet.write_table(table, sinks[".parquet"], write_page_checksum=True)
    pyarrow.feather.write_feather(table, sinks[".feather"], compression="uncompressed")
    with pa.ipc.new_stream(sinks[".arrow"], table.schema) as writer:
        writer.write_table(table)
    found = {suffix: sink.getvalue() for suffix, sink in sinks.items()}
    return found | {".csv.gz": gzip.compress(csv_text(columns).encode())}


def _halves(columns: Columns) -> tuple[Columns, Columns]:
    middle = len(columns["x"]) // 2
    return {n: v[:middle] for n, v in columns.items()}, {n: v[middle:] for n, v in columns.items()}


def lacking_shard(random, columns):
    first, second = _halves(columns)
    name = one(random, *columns)
    return [first, {key: values for key, values in second.items() if key != name}], Refused(name)


def shard_of_another_kind(random, columns):
    first, second = _halves(columns)
    name = one(random, "x", "mode", "u", "stage", "reward", "t", "done")
    count = len(second[name])
    others = {"mode": [1.0] * count, "stage": [True] * count, "t": pa.array(second["t"], pa.timestamp("s"))}
    second[name] = others.get(name, [str(value) for value in second[name]])
    return [first, second] if random.integers(2) else [second, first], Refused(name)


def shard_of_another_zone(random, columns):
    first, second = _halves(columns)
    first["t"] = pa.array(first["t"], pa.timestamp("s", "Europe/Berlin"))
    second["t"] = pa.array(second["t"], pa.timestamp("s"))
    return [first, second], Refused("t")


def folder_of_two_kinds(random, columns):
    return [*_halves(columns), b"x,y\n1,2\n"], Refused()


def damaged_shard(random, columns):
    first, second = _halves(columns)
    content = file_bytes(second)[".parquet"]
    return [first, content[: random.integers(len(content))]], Refused()


FOLDER_FAULTS = (lacking_shard, shard_of_another_kind, shard_of_another_zone, folder_of_two_kinds, damaged_shard)


def write_folder(parts: list, place: Path) -> Path:
    """A folder of Parquet files; bytes that are no Parquet file become a CSV file."""
    folder = place / "parts"
    folder.mkdir()
    for index, part in enumerate(parts):
        if isinstance(part, bytes):
            is_text = part.startswith(b"x,y")
            (folder / f"part-{index}.{'csv' if is_text else 'parquet'}").write_bytes(part)
        else:
            pyarrow.parquet.write_table(pa.table(part), folder / f"part-{index}.parquet")
    return folder


def flipped(random: np.random.Generator, content: bytes) -> bytes:
    """The bytes with a few of them changed."""
    changed = bytearray(content)
    for place in random.integers(0, len(changed), random.integers(1, 5)):
        changed[place] ^= int(random.integers(1, 256))
    return bytes(changed)
