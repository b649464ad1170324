"""Saving traces as files: a reader of printed traces, and programs that run without the original code."""

import os

from thunder_core.tracing.frames import add_package

# Compiled programs can call loaded ones: this package's frames are not part of the user's program.
add_package(os.path.dirname(os.path.abspath(__file__)))
