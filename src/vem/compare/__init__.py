"""Several methods on several datasets, each trained and evaluated once."""
