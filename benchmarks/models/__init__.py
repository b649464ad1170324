"""The models that are measured, by name: see ``catalogue``."""
