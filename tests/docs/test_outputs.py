"""The outputs that a page shows are those that its commands print."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

pytest.importorskip("pyarrow")
SCRIPT = Path(__file__).parents[2] / "docs" / "outputs.py"
spec = importlib.util.spec_from_file_location("outputs", SCRIPT)
assert spec is not None
assert spec.loader is not None
outputs = importlib.util.module_from_spec(spec)
spec.loader.exec_module(outputs)


@pytest.mark.slow
def test_the_page_shows_what_its_commands_print(tmp_path):
    """Words to the letter; trained numbers depend on the machine's last bits."""
    page = outputs.PAGE.read_text(encoding="utf-8")
    assert len(outputs.commands(page)) == 2
    assert without_numbers(outputs.filled(page, tmp_path)) == without_numbers(page)


def without_numbers(text):
    return re.sub(r"[\d.,]+", "0", text)


def test_a_command_that_fails_is_an_error(tmp_path):
    with pytest.raises(RuntimeError, match="ended with"):
        outputs.run("vem data map nothing.parquet", tmp_path)
