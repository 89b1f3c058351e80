"""Policies in their environments: episodes, results and statistics."""
