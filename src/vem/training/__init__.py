"""Training: a request in, a run directory with policies out."""
