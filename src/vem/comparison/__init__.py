"""Several methods or settings on several datasets, each trained and evaluated once."""
