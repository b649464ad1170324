"""Passes: transformations of traces."""
