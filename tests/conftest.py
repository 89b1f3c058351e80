from pathlib import Path

import pytest

BENCHMARK_DATA = Path(__file__).parents[1] / ".." / "shared" / "data"


@pytest.fixture(scope="session")
def benchmark_data() -> Path:
    """The directory with the benchmark's files, which are not part of the project."""
    if not BENCHMARK_DATA.is_dir():
        pytest.skip(f"the benchmark's files are not at {BENCHMARK_DATA}")
    return BENCHMARK_DATA
