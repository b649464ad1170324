"""Passes: programs in, programs out."""
