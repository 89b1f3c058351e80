"""Videos of policies; the encoder is a stand-in where moviepy is not installed."""

import sys

import gymnasium
import numpy as np
import pytest

import evaluation_cases as cases
import vem
from vem.cli import main
from vem.errors import MissingPackageError, SimulatorError, is_installed
from vem.evaluation.video import record_videos

ENCODER = """
import numpy as np


class ImageSequenceClip:
    def __init__(self, frames, fps):
        self.frames, self.fps = frames, fps

    def write_videofile(self, path, **options):
        with open(path, "wb") as file:
            np.savez(file, frames=np.array(self.frames), fps=self.fps)
"""


@pytest.fixture
def encoder(tmp_path, monkeypatch):
    """A moviepy that keeps the frames as arrays."""
    package = tmp_path / "encoder" / "moviepy" / "video" / "io"
    package.mkdir(parents=True)
    for folder in (package, *list(package.parents)[:2]):
        (folder / "__init__.py").write_text("")
    (package / "ImageSequenceClip.py").write_text(ENCODER)
    monkeypatch.syspath_prepend(tmp_path / "encoder")
    before = {name for name in sys.modules if name.split(".")[0] == "moviepy"}
    for name in before:
        monkeypatch.delitem(sys.modules, name)
    yield
    for name in [name for name in sys.modules if name.split(".")[0] == "moviepy"]:
        del sys.modules[name]


@pytest.fixture
def drawn():
    """The id of a registered environment that draws itself without OpenGL."""
    gymnasium.register("test/Drawn-v0", cases.Drawn, max_episode_steps=9)
    yield "test/Drawn-v0"
    del gymnasium.registry["test/Drawn-v0"]


def test_each_policy_has_a_video_of_the_first_evaluated_episode(encoder, drawn, tmp_path):
    policies = {"seed0": cases.constant_policy(), "seed1": cases.constant_policy()}
    files = record_videos(drawn, policies, tmp_path / "videos")
    assert sorted(path.name for path in (tmp_path / "videos").iterdir()) == [path.name for path in files]
    assert [path.name for path in files] == ["seed0-episode-0.mp4", "seed1-episode-0.mp4"]
    for path in files:
        video = np.load(path)
        assert video["frames"][:, 0, 0, 0].tolist() == [0, 60, 120, 180]
        assert video["fps"] == 5


def test_functions_make_their_environments_drawn_too(encoder, tmp_path):
    policy = cases.constant_policy()
    [path] = record_videos(lambda: cases.Drawn("rgb_array"), {"a": policy}, tmp_path)
    assert len(np.load(path)["frames"]) == 4
    with pytest.raises(SimulatorError, match="draws no pictures: give one that is registered"):
        record_videos(cases.Drawn, {"a": policy}, tmp_path)
    with pytest.raises(SimulatorError, match=r"cannot be drawn here \(RuntimeError: no OpenGL here\).* MUJOCO_GL=egl"):
        record_videos(lambda: cases.Undrawable("rgb_array"), {"a": policy}, tmp_path)


def test_a_directory_that_is_a_file(encoder, drawn, tmp_path):
    (tmp_path / "videos").write_text("")
    with pytest.raises(SimulatorError, match="is a file; give a directory"):
        record_videos(drawn, {"a": cases.constant_policy()}, tmp_path / "videos")


def test_the_command_and_the_function(encoder, tmp_path, monkeypatch, capsys):
    directory, videos = cases.make_run(tmp_path / "run", environment=None, sizes=(2, 1)), tmp_path / "videos"
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "registers_drawn.py").write_text(
        "import gymnasium, evaluation_cases\ngymnasium.register('test/Drawn-v1', evaluation_cases.Drawn)\n"
    )
    name = "registers_drawn:test/Drawn-v1"
    assert main(["evaluate", str(directory), "--env", name, "--episodes", "1", "--video", str(videos)]) == 0
    assert f"videos in {videos}" in capsys.readouterr().out
    assert [path.name for path in videos.iterdir()] == ["seed0-episode-0.mp4"]
    policy = vem.load_policy(directory / "policies" / "seed0.safetensors")
    found = vem.evaluate(policy, name, episodes=1, workers=1, video=tmp_path / "other")
    assert found.trials["seed0"].num_failed == 0
    assert (tmp_path / "other" / "seed0-episode-0.mp4").exists()


@pytest.mark.skipif(is_installed("moviepy"), reason="moviepy is installed")
def test_a_missing_encoder_is_said_before_any_episode(tmp_path):
    with pytest.raises(MissingPackageError, match=r"pip install 'vem\[video\]'"):
        vem.evaluate(cases.constant_policy(), cases.Walk, video=tmp_path)


def test_a_file_that_players_read(drawn, tmp_path):
    pytest.importorskip("moviepy")
    [path] = record_videos(drawn, {"a": cases.constant_policy()}, tmp_path)
    assert path.read_bytes()[4:8] == b"ftyp"
