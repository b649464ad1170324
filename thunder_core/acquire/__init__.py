"""Acquisition: the running program becomes a trace."""
