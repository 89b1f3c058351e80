"""Training runs: the loop, the run and its directory."""
