import numpy as np
import pytest

from vem import envs
from vem.data.mazes import WaypointBehavior, routes_from
from vem.envs.mazes import maze_layout


@pytest.mark.parametrize("maze", ["umaze", "medium", "large"])
def test_routes_are_shortest_and_pass_no_wall(maze):
    layout = maze_layout(f"pointmaze-{maze}")
    for start in layout.free_cells[::5]:
        routes = routes_from(layout, start)
        assert set(routes) == set(layout.free_cells)
        for cell, route in routes.items():
            assert (route[0], route[-1]) == (start, cell)
            assert not any(layout.walls[step] for step in route)
            assert np.all(np.abs(np.diff(np.array(route).reshape(-1, 2), axis=0)).sum(1) == 1)
            assert len(route) == len(routes_from(layout, cell)[start])


def test_a_route_by_hand():
    layout = maze_layout("pointmaze-umaze")
    assert routes_from(layout, (1, 1))[(3, 1)] == [(1, 1), (1, 2), (1, 3), (2, 3), (3, 3), (3, 2), (3, 1)]


def test_it_arrives_in_another_cell_at_most_half_the_way():
    env = envs.make("pointmaze-medium").unwrapped
    behavior = WaypointBehavior(env.layout, np.random.default_rng(0))
    assert behavior.max_moves == 5
    moves = []
    for seed in range(30):
        observation, _ = env.reset(seed=seed)
        behavior.reset()
        for _ in range(200):
            action = behavior.act(observation)
            assert env.action_space.contains(action)
            observation = env.step(action)[0]
            if behavior.has_arrived:
                break
        assert behavior.has_arrived
        moves.append(len(routes_from(env.layout, (1, 1))[env.layout.cell(*observation[:2])]) - 1)
    assert max(moves) in (4, 5)
    assert min(moves) in (0, 1)
    assert len(set(moves)) >= 4
