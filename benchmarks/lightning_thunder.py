"""The package ``lightning-thunder``, whose module has the same name as ours."""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import sys
from pathlib import Path
from typing import Any

ADVICE = (
    "install it into a folder of its own (pip install --target FOLDER lightning-thunder) and name that in PYTHONPATH"
)


def lightning_thunder() -> Any:
    """Its module ``thunder``; ours cannot be imported in this process any more.

    Raises:
        RuntimeError: ours was imported before, or overwrote its files.
    """
    folder = Path(str(importlib.metadata.distribution("lightning-thunder").locate_file("")))
    sys.path.insert(0, str(folder))
    module = importlib.import_module("thunder")
    if importlib.util.find_spec("thunder._api") is not None or not Path(module.__file__ or "").is_relative_to(folder):
        raise RuntimeError(f"the module thunder in {folder} is not that of lightning-thunder; {ADVICE}")
    return module
