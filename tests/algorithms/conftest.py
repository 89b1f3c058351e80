import pytest

from small_runs import quick_compilation


@pytest.fixture(scope="module", autouse=True)
def quick(tmp_path_factory):
    """Nothing here runs long enough for optimized programs to pay."""
    with quick_compilation(tmp_path_factory.getbasetemp() / "programs"):
        yield
