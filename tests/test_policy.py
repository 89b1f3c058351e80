"""Each kind of policy, worked by hand or against its definition; files that are not policies."""

import dataclasses
import json
import struct

import numpy as np
import pytest
from safetensors.numpy import save

from deployed import KINDS, random_policy
from vem.data.actions import ActionColumn
from vem.data.encoding import Encoder, InputColumn
from vem.errors import RunError, VemError
from vem.policy import FORMAT, VERSION, Policy, load_policy, make_policy
from vem.storage import write_file, write_tensors

BOUNDS = (np.asarray([-2.0]), np.asarray([4.0]))
NORMALIZER = (np.asarray([1.0]), np.asarray([2.0]))


def layer(weight, bias):
    return {"weight": np.asarray(weight, np.float32), "bias": np.asarray(bias, np.float32)}


def make(kind, **parameters):
    return make_policy(kind, {**parameters, "value_unit": np.asarray(10.0, np.float32)}, BOUNDS, NORMALIZER, {})


@pytest.fixture
def path(tmp_path):
    return tmp_path / "policy.safetensors"


@pytest.fixture
def gaussian():
    critics = [layer([[[1.0]], [[3.0]]], [[0.0], [0.0]])]
    return make("gaussian", actor=[layer([[1.0]], [0.0])], log_std=np.zeros(1, np.float32), critics=critics)


@pytest.fixture
def tanh_gaussian():
    bounds = np.asarray([-20.0, 2.0], np.float32)
    return make("tanh-gaussian", actor=[layer([[1.0, 0.0]], [0.0, 5.0])], log_std_bounds=bounds)


def bcq_policy(num_actions=7):
    """Generates tanh(latent), moves it by +0.1, prefers the largest action."""
    return make(
        "bcq",
        decoder=[layer([[0.0], [1.0]], [0.0])],
        perturbation=[layer([[0.0], [0.0]], [50.0])],
        chooser=[layer([[0.0], [1.0]], [0.0])],
        limit=np.asarray(0.1, np.float32),
        num_actions=np.asarray(num_actions, np.int32),
    )


def test_mean_action_is_normalized_squashed_and_scaled(gaussian):
    # (3 − 1)/2 = 1; the bounds −2 and 4 have middle 1 and half width 3
    assert gaussian.act(np.asarray([3.0]))[0] == pytest.approx(1 + 3 * np.tanh(1), rel=1e-6)
    assert gaussian.act(np.asarray([[3.0], [1.0]])).shape == (2, 1)


def test_value_is_the_mean_of_critics_in_the_recorded_unit(gaussian):
    assert gaussian.value(np.asarray([3.0])) == pytest.approx(10 * (1 + 3) / 2)
    assert gaussian.value(np.asarray([[3.0], [1.0]])).tolist() == pytest.approx([20.0, 0.0])


def test_samples_follow_the_key_and_stay_within_bounds(gaussian):
    observations = np.full((500, 1), 3.0)
    samples = gaussian.act(observations, key=0)
    assert np.array_equal(samples, gaussian.act(observations, key=0))
    assert not np.array_equal(samples, gaussian.act(observations, key=1))
    assert samples.std() > 0.5
    assert samples.min() >= -2
    assert samples.max() <= 4


def test_deterministic_policies_ignore_the_key():
    policy = make("deterministic", actor=[layer([[1.0]], [0.0])])
    assert np.array_equal(policy.act(np.asarray([2.0])), policy.act(np.asarray([2.0]), key=4))
    with pytest.raises(RunError, match="no state values"):
        policy.value(np.asarray([2.0]))


def test_tanh_gaussian_acts_by_its_mean_and_samples_with_clipped_deviation(tanh_gaussian):
    assert tanh_gaussian.act(np.asarray([3.0]))[0] == pytest.approx(1 + 3 * np.tanh(1), rel=1e-6)
    samples = (tanh_gaussian.act(np.full((4000, 1), 1.0), key=0) - 1) / 3
    free = np.arctanh(np.clip(samples, -0.999999, 0.999999))
    # log σ = 5 is clipped to 2: half of the draws of N(0, e²) lie within 0.674·e² of 0
    assert np.median(np.abs(free)) == pytest.approx(0.674 * np.exp(2), rel=0.1)


def test_bcq_takes_the_best_of_its_candidates():
    latents = np.clip(np.random.default_rng(0).standard_normal((7, 1), dtype=np.float32), -0.5, 0.5)
    best = np.tanh(latents).max() + 0.1
    policy = bcq_policy()
    actions = policy.act(np.asarray([[3.0], [-5.0]]))
    np.testing.assert_allclose(actions, 1 + 3 * best, rtol=1e-5)
    many = bcq_policy(num_actions=1).act(np.full((200, 1), 3.0), key=0)
    assert many.std() > 0.1, "with a key every observation has latents of its own"


def test_bcq_values_a_state_by_the_best_of_ten_candidates():
    latents = np.clip(np.random.default_rng(0).standard_normal((10, 1), dtype=np.float32), -0.5, 0.5)
    many = np.full((2500, 1), 3.0)  # more than are valued at a time
    best = np.tanh(latents).max() + 0.1
    np.testing.assert_allclose(bcq_policy(num_actions=1).value(many), 10 * best, rtol=1e-5)
    assert bcq_policy().value(many[0]).shape == ()


def test_a_learnt_q_values_a_state_by_the_mean_action():
    critics = [layer([[[10.0], [1.0]], [[0.0], [3.0]]], [[0.0], [0.0]])]
    policy = make("deterministic", actor=[layer([[1.0]], [0.0])], action_critics=critics)
    # s = (3 − 1)/2 = 1, a = tanh(1): the mean of 10·s + a and 3·a, in the unit 10
    assert float(policy.value(np.asarray([3.0]))) == pytest.approx(10 * (10 + 4 * np.tanh(1)) / 2, rel=1e-6)


def choosing(kind, **parameters):
    """A policy with one choice among three; Q or logits are s·(3, 1, 2)."""
    choices = np.asarray([3], np.int32)
    network = [layer([[3.0, 1.0, 2.0]], [0.0, 0.0, 0.0])]
    name = {"deterministic": "actor", "gaussian": "actor"}.get(kind, "choice_critic")
    parameters = {name: network, "action_choices": choices, "value_unit": np.asarray(10.0, np.float32), **parameters}
    return make_policy(kind, parameters, (np.zeros(1), np.full(1, 2.0)), (np.zeros(1), np.ones(1)), {})


def test_a_choice_is_the_code_with_the_largest_output(path):
    for kind in ("deterministic", "greedy"):
        policy = choosing(kind)
        assert policy.act(np.asarray([[2.0], [-2.0]])).tolist() == [0, 1]
        assert isinstance(policy.act(np.asarray([2.0])), np.int64)
        policy.save(path)
        assert load_policy(path).act(np.asarray([-2.0])) == 1
    assert choosing("greedy").value(np.asarray([[2.0], [-2.0]])).tolist() == [60, -20]
    assert [column.labels for column in policy.action_columns] == [("0", "1", "2")]


def test_unlikely_choices_are_not_taken(path):
    behavior = [layer([[0.0, 0.0, 0.0]], np.log([0.1, 0.5, 0.4]))]
    policy = choosing("constrained-greedy", behavior=behavior, threshold=np.asarray(0.3, np.float32))
    assert policy.act(np.asarray([[2.0], [-2.0]])).tolist() == [2, 1]
    assert policy.value(np.asarray([2.0])) == pytest.approx(40)
    policy.save(path)
    assert load_policy(path).act(np.asarray([2.0])) == 2


@pytest.mark.parametrize("observations", [np.zeros(2), np.zeros((3, 2)), np.zeros((1, 1, 1)), np.asarray([np.nan])])
def test_refuses_observations_it_cannot_read(gaussian, observations):
    with pytest.raises(RunError):
        gaussian.act(observations)


def test_save_and_load(gaussian, tmp_path, path):
    Policy(gaussian.kind, gaussian.tensors, {"algorithm": "vem", "seed": 3}).save(path)
    loaded = load_policy(path)
    assert loaded.info == {"algorithm": "vem", "seed": 3}
    assert np.array_equal(loaded.act(np.asarray([0.3])), gaussian.act(np.asarray([0.3])))
    assert loaded.value(np.asarray([0.3])) == gaussian.value(np.asarray([0.3]))
    assert load_policy(tmp_path).info == loaded.info


@pytest.mark.parametrize(
    ("header", "message"),
    [
        ({"format": "other", "version": VERSION, "kind": "gaussian"}, "not a vem policy"),
        ({"format": FORMAT, "version": 99, "kind": "gaussian"}, "version 99"),
        ({"format": FORMAT, "version": VERSION, "kind": "mystery"}, "mystery"),
        ({"format": FORMAT, "version": VERSION, "kind": []}, "policy of kind"),
        ({"format": FORMAT, "version": VERSION}, "policy of kind"),
        ({"format": FORMAT, "version": VERSION, "kind": "gaussian"}, "lacks action_high"),
    ],
)
def test_refuses_files_that_are_not_its_own(path, header, message):
    write_tensors(path, {"action_low": np.zeros(1, np.float32)}, header)
    with pytest.raises(RunError, match=message):
        load_policy(path)


@pytest.mark.parametrize("info", [5, {"settings": 5}, {"action_columns": 5}, {"action_columns": [{"name": 5}]}])
def test_refuses_facts_that_are_none(path, gaussian, info):
    dataclasses.replace(gaussian, info=info).save(path)
    with pytest.raises(RunError, match="train it again"):
        load_policy(path)


def with_entry(kind):
    """A file whose tensor holds numbers of a kind that NumPy lacks."""
    entry = {"dtype": kind, "shape": [8], "data_offsets": [0, {"BF16": 16, "U4": 4}[kind]]}
    text = json.dumps({"__metadata__": {"vem": "00000000 {}"}, "a": entry}).encode()
    return struct.pack("<Q", len(text)) + text + bytes(entry["data_offsets"][1])


def with_header(text):
    return save({"a": np.zeros(1, np.float32)}, metadata={"vem": text})


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (with_entry("BF16"), "is damaged"),
        (with_entry("U4"), "is damaged"),
        (with_header("00000000 " + '{"a":' * 200_000), "is damaged"),
        (with_header("00000000 []"), "is damaged"),
        (with_header("00000000 {"), "is damaged"),
        (with_header('{"crc32": 1}'), "was written by another version of vem"),
        (b"{}", "is damaged"),
    ],
    ids=range(7),
)
def test_a_damaged_file_is_said_to_be_one(path, content, message):
    write_file(path, content)
    with pytest.raises(RunError, match=message):
        load_policy(path)


def test_a_flipped_bit_anywhere_is_found(path):
    column_policy().save(path)
    whole = path.read_bytes()
    for place in range(0, len(whole), 3):
        content = bytearray(whole)
        content[place] ^= 1 << place % 8
        path.write_bytes(content)
        with pytest.raises(RunError):
            load_policy(path)


def test_refuses_absent_files(path):
    with pytest.raises(RunError, match="no policy file"):
        load_policy(path)


ONE, TWO = np.zeros(1, np.float32), np.zeros(2, np.float32)
DAMAGES = {
    "actor.0.weight holds NaN": {"actor.0.weight": np.asarray([[np.nan]], np.float32)},
    "observation_mean has shape": {"observation_mean": TWO},
    "layer 0 of actor takes 1 numbers and is given 2": {"observation_mean": TWO, "observation_deviation": TWO + 1},
    "actor gives 1 numbers instead of 2": {"action_low": TWO, "action_high": TWO + 1},
    "deviation holds numbers that are not above 0": {"observation_deviation": ONE},
    "action_low is above": {"action_low": ONE + 9},
    "a weight and a bias that do not fit": {"actor.0.bias": TWO},
    "layer 1 of actor takes 2 numbers and is given 1": {"actor.1.weight": np.ones((2, 1)), "actor.1.bias": ONE},
    "log_std has 3 numbers": {"log_std": np.zeros(3, np.float32)},
    "value_unit has 2 numbers": {"value_unit": TWO},
    "action_choices are": {"action_choices": np.zeros(3, np.int32)},
    "actor gives 1 numbers instead of 3": {"action_choices": np.asarray([3], np.int32)},
    "layer 0 of critics takes 2 numbers": {"critics.0.weight": np.ones((2, 2, 1), np.float32)},
}  # fmt: skip


@pytest.mark.parametrize("message", DAMAGES)
def test_refuses_numbers_that_are_no_policy_though_their_checksum_is_right(gaussian, path, message):
    dataclasses.replace(gaussian, tensors={**gaussian.tensors, **DAMAGES[message]}).save(path)
    with pytest.raises(RunError, match=message):
        load_policy(path)


LACKS = {
    "bcq": "limit",
    "guided": "move_scale",
    "greedy": "the network choice_critic",
    "tanh-gaussian": "log_std_bounds",
}


@pytest.mark.parametrize("kind", LACKS)
def test_refuses_what_is_not_there(gaussian, path, kind):
    dataclasses.replace(gaussian, kind=kind).save(path)
    with pytest.raises(RunError, match=f"it lacks {LACKS[kind]}"):
        load_policy(path)


@pytest.mark.parametrize(("kind", "choices"), KINDS, ids=str)
def test_loads_every_kind_that_is_whole(kind, choices, path):
    policy = random_policy(kind, choices)
    policy.save(path)
    loaded, observations = load_policy(path), np.ones((2, 5))
    np.testing.assert_array_equal(loaded.act(observations, key=0), policy.act(observations, key=0))
    with pytest.raises(RunError, match="overflow"):
        dataclasses.replace(policy, tensors={**policy.tensors, **overflowing(policy)}).act(np.full(5, 3e38))


def overflowing(policy):
    """Networks whose outputs are NaN or infinite far outside."""
    tensors = {name: tensor * 1e30 for name, tensor in policy.tensors.items() if name.endswith(".weight")}
    return {name: tensor.astype(np.float32) for name, tensor in tensors.items()}


def column_policy():
    inputs = (InputColumn("temp", "number"), InputColumn("mode", "categorical", labels=("eco", "boost")))
    outputs = (ActionColumn("valve", "box", 0.0, 1.0), ActionColumn("fan", "discrete", 0.0, 1.0, ("off", "on")))
    tensors = {
        "actor.0.weight": np.array([[0.1, 0], [0, 1], [0, -1]], np.float32),
        "actor.0.bias": np.zeros(2, np.float32),
        "log_std": np.zeros(2, np.float32),
        "action_low": np.zeros(2, np.float32),
        "action_high": np.ones(2, np.float32),
        "observation_mean": np.zeros(3, np.float32),
        "observation_deviation": np.ones(3, np.float32),
        "value_unit": np.ones(1, np.float32),
    }
    return Policy("gaussian", tensors, {}, Encoder(inputs, outputs, ("number", "text")))


def test_a_policy_takes_the_logs_own_columns(path):
    column_policy().save(path)
    policy = load_policy(path)
    assert policy.columns == ("temp", "mode")
    assert policy.encoder == column_policy().encoder
    action = policy.act({"temp": 3.0, "mode": "eco"})
    assert action == {"valve": pytest.approx(0.5 + np.tanh(0.3) / 2), "fan": "on"}
    several = policy.act([{"temp": 3.0, "mode": "eco"}, {"temp": 0, "mode": "boost"}])
    assert several["fan"].tolist() == ["on", "off"]
    np.testing.assert_allclose(policy.act(np.array([3.0, 1, 0]))[0], action["valve"], rtol=1e-6)
    with pytest.raises(VemError, match="column 'mode' holds 'turbo'"):
        policy.act({"temp": 3.0, "mode": "turbo"})


def test_a_policy_of_arrays_refuses_columns():
    policy = dataclasses.replace(column_policy(), encoder=None)
    with pytest.raises(RunError, match="not trained on a table and knows no column names"):
        policy.act({"temp": 3.0, "mode": "eco"})
    with pytest.raises(RunError, match="no array of numbers"):
        policy.act("warm")


@pytest.mark.parametrize(
    ("part", "change"),
    [
        ("inputs", {"labels": [1, 2]}),
        ("inputs", {"labels": "ab"}),
        ("inputs", {"name": 5}),
        ("inputs", {"sentinels": ["x"]}),
        ("inputs", {"kind": []}),
        ("outputs", {"labels": "ab"}),
        ("outputs", {"name": []}),
    ],
)
def test_columns_of_a_wrong_kind_are_found_when_the_file_is_read(path, part, change):
    policy = column_policy()
    stored = policy.encoder.to_json()
    stored[part] = [stored[part][0], {**stored[part][1], **change}]
    header = {"format": FORMAT, "version": VERSION, "kind": "gaussian", "info": {}, "encoder": stored}
    write_tensors(path, policy.tensors, header)
    with pytest.raises(RunError, match="cannot be read"):
        load_policy(path)


def test_labels_that_are_not_of_their_type_are_found_when_the_file_is_read(path):
    policy = column_policy()
    encoder = dataclasses.replace(policy.encoder, output_types=("number", "integer"))
    dataclasses.replace(policy, encoder=encoder).save(path)
    with pytest.raises(RunError, match="column 'fan' has a label that is no integer"):
        load_policy(path)


def test_numbers_that_float32_cannot_hold_are_one_error(gaussian):
    with pytest.raises(VemError, match=r"column .temp. holds 1000.* float32 cannot hold"):
        column_policy().act({"temp": 10**400, "mode": "eco"})
    with pytest.raises(VemError, match="float32 cannot hold"):
        gaussian.act([10**400])
    with pytest.raises(VemError, match="NaN or infinity"):
        gaussian.act(np.asarray([1e300]))


def test_no_observations_have_no_values(gaussian, tanh_gaussian):
    assert gaussian.value(np.zeros((0, 1))).shape == (0,)
    assert gaussian.act(np.zeros((0, 1))).shape == (0, 1)
    assert bcq_policy().value(np.zeros((0, 1))).shape == (0,)


def test_far_outside_a_policy_acts_without_a_word_or_refuses(gaussian, tanh_gaussian):
    for policy in (gaussian, tanh_gaussian, bcq_policy()):
        for size in (1e20, -1e20):
            actions = policy.act(np.asarray([[size]]))
            assert ((actions >= -2) & (actions <= 4)).all()
            policy.act(np.asarray([[size]]), key=0)
    assert gaussian.value(np.asarray([1e20])) == pytest.approx(1e21)
    with pytest.raises(RunError, match="so large that the policy's numbers overflow"):
        gaussian.value(np.asarray([3e38]))


def test_an_encoder_that_does_not_fit_is_refused(path):
    policy = column_policy()
    inputs = policy.encoder.inputs[:1]
    dataclasses.replace(policy, encoder=dataclasses.replace(policy.encoder, inputs=inputs)).save(path)
    with pytest.raises(RunError, match="its columns do not fit its networks"):
        load_policy(path)
