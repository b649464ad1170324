"""Recognition of composites: the table of patterns, and its matches in a program.

The module with a package's composites adds its patterns with `add_patterns` when it is imported.
"""

from thunder_plugin_composites.recognition.pattern import Pattern
from thunder_plugin_composites.recognition.table import add_patterns

__all__ = ["Pattern", "add_patterns"]
