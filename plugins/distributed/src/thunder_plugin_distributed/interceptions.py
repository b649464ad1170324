"""All interceptions of the plugin: of collectives, and of the hooks of PyTorch's wrappers."""

from __future__ import annotations

from typing import Final

from thunder_plugin_distributed import data_parallel, fully_shard
from thunder_plugin_distributed.recording import interceptions

INTERCEPTIONS: Final = (*interceptions.INTERCEPTIONS, *fully_shard.INTERCEPTIONS, *data_parallel.INTERCEPTIONS)
