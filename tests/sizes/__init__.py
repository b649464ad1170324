"""Sizes of inputs that vary between calls."""
