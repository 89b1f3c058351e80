"""From a process of five states to the deep algorithm: the same plan, by table and by network.

Run with: python examples/five_states.py
"""

import functools

import numpy as np

import vem
from vem.theory import operators
from vem.theory.mdp import MDP, expectile_values, optimal_values, policy_values, rollouts
from vem.theory.operators import distance, fixed_point

# A corridor. Action 0 steps left, action 1 right; stepping right from state 3 pays 1 and enters state 4, which
# pays nothing ever after. The behavior is a coin, so its value is far from the best.
successors = np.array([[0, 1], [0, 2], [1, 3], [2, 4], [4, 4]])
rewards = np.zeros((5, 2))
rewards[3, 1] = 1
mdp = MDP(rewards, np.eye(5)[successors], discount=0.9)
coin = np.full((5, 2), 0.5)

print("behavior V^μ  ", policy_values(mdp, coin).round(3))
for expectile in (0.7, 0.9, 0.99):
    print(f"V*_τ, τ = {expectile:<4} ", expectile_values(mdp, coin, expectile).round(3))
print("optimal V*     ", optimal_values(mdp).round(3))

# The memory operator has the fixed point of the expectile operator at τ = 0.9, and comes nearer to it from zero.
memory = functools.partial(operators.vem, mdp=mdp, behavior=coin, expectile=0.9)
found = fixed_point(functools.partial(memory, max_steps=10), np.zeros(5), operators.contraction_bound(0.9, 0.9))
print("T_vem limit    ", found.values.round(3), f"(certified to {found.error_bound:.0e})")
for max_steps in (1, 10):
    values = memory(memory(np.zeros(5), max_steps=max_steps), max_steps=max_steps)
    print(f"two applications with n_max = {max_steps:2}: error {distance(values, found.values):.3f}")

# The deep algorithm sees trajectories only: 200 walks of 20 steps, states as one-hot vectors, actions as ±1.
recorded = rollouts(mdp, coin, np.arange(200) % 4, 20, np.random.default_rng(0))
here, after = recorded.states[:, :-1], recorded.states[:, 1:]
dataset = vem.from_arrays(
    observations=np.eye(5)[here.ravel()],
    actions=np.where(after > here, 1.0, -1.0).reshape(-1, 1),
    rewards=recorded.rewards.ravel(),
    terminals=(recorded.rewards > 0).ravel(),
    timeouts=np.tile(np.arange(20) == 19, 200),
    next_observations=np.eye(5)[after.ravel()],
    split="first-success",
    discrete=False,
)
run = vem.train(dataset, algorithm="vem", steps=2000, expectile=0.5, discount=0.9, batch_size=64)
# The network's plan takes the best along each walk, which is optimistic already at τ = ½: V lies above V^μ.
print("network V      ", run.policy.value(np.eye(5)[:4]).round(3))
print("network actions", run.policy.act(np.eye(5)[:4]).ravel().round(2), "(+1 is right)")
