"""Saving compiled programs and traces as files.

- Compiled programs: `programs` writes them and `loaded` runs them, without the compiler. `archive` is the file, with
  `guards`, `state` and `results` as its parts. `verified_source` verifies and compiles the source, and `show` prints
  what is in a file.
- Weights of models on the meta device: `materialization`, from `tensor_files` or by `initialization`.
- Traces: `files` writes and loads them as Python modules, `reader` reads a printed trace back.
- `operations` and `names` have the names that files may use.
"""

import os

from thunder_core.tracing.frames import add_package

# Compiled programs can call loaded ones: this package's frames are not part of the user's program.
add_package(os.path.dirname(os.path.abspath(__file__)))
