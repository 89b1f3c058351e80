"""Mathematics on arrays: plans, losses, advantages, networks. Knows nothing of files or runs."""
