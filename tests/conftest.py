import os
from pathlib import Path

import pytest

# The workers of the suite use the cores already; tests of several devices start their own process. JAX reads this when
# it is imported, which the other conftest files do.
os.environ["JAX_NUM_CPU_DEVICES"] = "1"

BENCHMARK_DATA = Path(__file__).parents[1] / ".." / "shared" / "data"


@pytest.fixture(scope="session")
def benchmark_data() -> Path:
    """The directory with the benchmark's files, which are not part of the project."""
    if not BENCHMARK_DATA.is_dir():
        pytest.skip(f"the benchmark's files are not at {BENCHMARK_DATA}")
    return BENCHMARK_DATA


def pytest_configure(config: pytest.Config) -> None:
    """Share compiled programs between tests, workers and sessions: most of the suite's time would be compiling."""
    directory = Path(config.rootpath) / ".pytest_cache" / "xla"
    os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(directory))
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark what ``long_tests.txt`` names as slow: it takes long, and shorter tests cover its subject as well."""
    lines = (Path(__file__).parent / "long_tests.txt").read_text(encoding="utf-8").splitlines()
    names = {line for line in lines if line and not line.startswith("#")}
    for item in items:
        if item.nodeid.removeprefix("tests/") in names:
            item.add_marker(pytest.mark.slow)
