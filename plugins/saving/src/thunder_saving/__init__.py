"""Saving traces as files: a reader of printed traces, and programs that run without the original code."""

import os

from thunder_core.guards.code_kinds import add_package
from thunder_core.tracing.user_frames import add_internal_package

# Compiled programs can call loaded ones: this package's frames are not part of the user's program.
_FOLDER = os.path.dirname(os.path.abspath(__file__))
add_package(_FOLDER)
add_internal_package(_FOLDER)
