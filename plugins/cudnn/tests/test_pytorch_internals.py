"""Each private name of PyTorch that the plugin uses exists, and behaves as the plugin takes for granted."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

import thunder_plugin_cudnn
from thunder_plugin_cudnn.pytorch_internals import NAMES
from thunder_testing import private_names_suite


def raw_stream(function: Any) -> None:
    if torch.cuda.is_available():
        for stream in (torch.cuda.default_stream(), torch.cuda.Stream()):
            with torch.cuda.stream(stream):
                assert function(torch.cuda.current_device()) == stream.cuda_stream
    assert callable(function)


CHECKS: dict[str, Callable[..., object]] = {"current_raw_stream": raw_stream}

test_names = private_names_suite(NAMES, CHECKS, folders=[Path(thunder_plugin_cudnn.__file__).parent])
