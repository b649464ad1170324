"""Configurations: one validated file that says who runs what, in which order."""
