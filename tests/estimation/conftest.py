import pytest

from small_runs import quick_compilation


@pytest.fixture(scope="module", autouse=True)
def quickly(tmp_path_factory):
    """Compile without optimizing."""
    with quick_compilation(tmp_path_factory.getbasetemp() / "programs"):
        yield
