"""Raises when it is imported."""

LIMIT = 1 / 0
