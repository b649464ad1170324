"""Functional transformations: ``grad`` and ``vjp``, and calls of compiled programs under `torch.func`."""

import os

from thunder_core.tracing.frames import add_library

# Programs call transformations while they are recorded: these are not part of the user's program, but lead to it.
add_library(os.path.dirname(os.path.abspath(__file__)))
