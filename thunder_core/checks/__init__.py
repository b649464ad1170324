"""Checks of guards: paths to Python objects, conditions on these, and the prologues that run them for each call."""
