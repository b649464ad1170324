"""Acquisition: run the program once and record it as a trace."""
