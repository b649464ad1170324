"""Functional transformations: ``grad`` and ``vjp``, and calls of compiled programs under `torch.func`."""

import os

from thunder_core.guards.code_kinds import add_library
from thunder_core.tracing.user_frames import add_internal_package

# Programs call transformations while they are recorded: these are not part of the user's program, but lead to it.
_FOLDER = os.path.dirname(os.path.abspath(__file__))
add_library(_FOLDER)
add_internal_package(_FOLDER)
