"""The pattern table: recognizes composites that models spell out, and offers them to executors."""

from thunder_core.passes.patterns.pattern import Pattern
from thunder_core.passes.patterns.recognize import RecognizeComposites, Recognized
from thunder_core.passes.patterns.table import add_patterns

__all__ = ["Pattern", "RecognizeComposites", "Recognized", "add_patterns"]
