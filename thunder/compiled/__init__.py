"""Compiled functions and modules: what `thunder.jit` returns."""
