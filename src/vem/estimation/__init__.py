"""What policies are worth by recorded trajectories alone."""
