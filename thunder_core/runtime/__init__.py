"""Compiled functions and modules, their compilation and cache."""
