import dataclasses

import pytest

import vem
from comparison_cases import SETTINGS, write_data
from small_runs import quick_compilation
from vem.comparison.compare import compare
from vem.errors import SettingsError

GIVEN = {"seeds": 2, "steps": 20, "episodes": 2, "settings": {"bc": SETTINGS["bc"]}, "progress": False}


@pytest.fixture(scope="module", autouse=True)
def quick(tmp_path_factory):
    with quick_compilation(tmp_path_factory.mktemp("programs")):
        yield


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    """A Dataset that no file holds."""
    loaded = vem.load(write_data(tmp_path_factory.mktemp("data")))
    return dataclasses.replace(loaded, info=dataclasses.replace(loaded.info, source="arrays"))


def test_a_dataset_in_hand_is_compared(dataset, tmp_path, capsys):
    comparison = compare(dataset, "bc", out=tmp_path, **GIVEN)
    (result,) = comparison.results
    assert (result.dataset, result.algorithm, result.directory) == (
        "pointmaze-umaze", "bc", tmp_path / "pointmaze-umaze" / "bc",
    )  # fmt: skip
    assert result.spread is not None
    assert comparison.failures == {}
    assert capsys.readouterr().out == ""
    before = (result.directory / "policies" / "seed0.safetensors").stat().st_mtime_ns
    assert vem.compare([dataset], ["bc"], out=tmp_path, **GIVEN) == comparison
    assert (result.directory / "policies" / "seed0.safetensors").stat().st_mtime_ns == before


def test_arrays_cannot_be_given_to_other_processes(dataset, tmp_path):
    with pytest.raises(SettingsError, match=r"pointmaze-umaze was made from arrays.*jobs=1"):
        compare(dataset, "bc", out=tmp_path / "out", jobs=2, **GIVEN)
    assert not (tmp_path / "out").exists()


def test_a_preset_reads_a_dataset_in_hand_by_its_rules(tmp_path):
    path = write_data(tmp_path)
    given = {**GIVEN, "settings": {"vem-authors": SETTINGS["awr"]}, "seeds": 1}
    with pytest.raises(SettingsError, match=r"read with time_limit='bootstrap'.*vem\.load\('.*', time_limit='end'\)"):
        compare(vem.load(path), "vem-authors", out=tmp_path / "out", **given)
    assert not (tmp_path / "out").exists()
    ended = vem.load(path, time_limit="end")
    sums = []
    for jobs in (1, 2):
        comparison = compare(ended, ["vem-authors"], out=tmp_path / str(jobs), jobs=jobs, **given)
        assert comparison.failures == {}
        run = vem.open_run(comparison.results[0].directory)
        assert run.config.rules["repeat_terminals"] is True
        assert run.dataset.num_rows == ended.num_rows + ended.num_episodes  # read again, and refused if it differs
        sums.append(run.facts.sha256)
    assert sums[0] == sums[1] != ended.fingerprint()


@pytest.mark.parametrize("given", [{"jobs": 0}, {"episodes": 0}, {"jobs": 1.5}])
def test_counts_that_mean_nothing(tmp_path, given):
    with pytest.raises(SettingsError, match="it must be a whole number, 1 or more"):
        compare("a.npz", "bc", out=tmp_path / "out", **{**GIVEN, **given})


@pytest.mark.parametrize("every", [0, 0.0, 1.0, 2.5, -0.1, float("nan"), True])
def test_periods_that_mean_nothing(tmp_path, every):
    with pytest.raises(SettingsError, match="--evaluate-every is"):
        compare("a.npz", "bc", out=tmp_path / "out", **GIVEN, evaluate_every=every)
