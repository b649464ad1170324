"""Recognition of composites: the table of patterns, and the lines of a program that match one.

A package whose module of composites is imported adds its patterns by `add_patterns`.
"""

from thunder_plugin_composites.recognition.pattern import Pattern
from thunder_plugin_composites.recognition.table import add_patterns

__all__ = ["Pattern", "add_patterns"]
