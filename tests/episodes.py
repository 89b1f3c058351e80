"""Random recorded episodes, and plain loops that the fast code must agree with."""

import numpy as np


def random_steps(generator: np.random.Generator, lengths, discount=0.9, terminal_share=0.5):
    """(rewards, continues, valid) of episodes with the given numbers of steps, in the layout of a Dataset."""
    rewards, continues, valid = [], [], []
    for length in lengths:
        ended = generator.random() < terminal_share
        rewards += [*generator.normal(size=length), 0.0]
        continues += [*np.full(length - 1, discount), 0.0 if ended else discount, discount]
        valid += [True] * length + [False]
    return np.asarray(rewards, np.float32), np.asarray(continues, np.float32), np.asarray(valid)


def n_step_table(values, rewards, continues, valid, row):
    """The n-step returns of a row for n = 1, 2, … to its episode's end, by a double loop."""
    table, total, factor, i = [], 0.0, 1.0, row
    while valid[i]:
        total += factor * float(rewards[i])
        factor *= float(continues[i])
        i += 1
        table.append(total + factor * float(values[i]))
    return np.asarray(table)


def loop_maximum(values, rewards, continues, valid, num_steps=None, least_steps=1):
    """max over least_steps ≤ n ≤ num_steps of the n-step returns, row by row; to the end where fewer steps are left."""
    planned = np.asarray(values, np.float64).copy()
    for row in np.flatnonzero(valid):
        table = n_step_table(values, rewards, continues, valid, row)
        planned[row] = table[least_steps - 1 : num_steps].max() if len(table) >= least_steps else table[-1]
    return planned


def table_crossed(values, rewards, continues, valid, num_steps=None):
    """The authors' double selection from full tables of n-step returns of both groups."""
    planned = np.asarray(values, np.float64).copy()
    for row in np.flatnonzero(valid):
        tables = [n_step_table(group, rewards, continues, valid, row)[:num_steps] for group in values]
        for group in (0, 1):
            chosen = int(np.argmax(tables[group]))
            planned[group, row] = max(tables[1 - group][chosen], tables[group][0])
    return planned
