"""The presets of the core: configurations that are used by name."""
