"""Executors: who runs the symbols of a trace."""
