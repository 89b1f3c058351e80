import subprocess
import sys

import pytest

import vem
from vem.cli import VERBS, main


def test_every_verb_has_help(capsys):
    for verb in VERBS:
        with pytest.raises(SystemExit) as stop:
            main([verb, "--help"])
        assert stop.value.code == 0
        assert f"vem {verb}" in capsys.readouterr().out


def test_no_verb_is_a_usage_error(capsys):
    with pytest.raises(SystemExit) as stop:
        main([])
    assert stop.value.code == 2
    assert "VERB" in capsys.readouterr().err


def test_importing_vem_loads_no_numerics():
    code = "import sys, vem; print(sorted({'jax', 'numpy', 'mujoco', 'matplotlib'} & set(sys.modules)))"
    assert (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"
    )


def test_public_names_exist_and_can_be_called():
    assert set(vem.__all__) <= set(dir(vem))
    for name in vem.__all__:
        assert callable(getattr(vem, name)), name


def test_compare_and_report_are_functions_although_packages_have_their_names():
    from vem.errors import VemError
    from vem.reports.report import write_report

    assert vem.report.write_report is write_report
    with pytest.raises(VemError):
        vem.report([])
    with pytest.raises(VemError):
        vem.compare([], [])
