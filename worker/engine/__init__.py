"""Continuous batching: requests in, completions out."""
