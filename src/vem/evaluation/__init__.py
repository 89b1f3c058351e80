"""Policies in environments: episodes, worker processes, records and statistics."""
