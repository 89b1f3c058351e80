"""Trajectory datasets: roll-outs as files in D4RL's layout."""
