"""A cache of the Hub with one kernel, written in Python, and its lock file; nothing is downloaded."""

import json
import os
import tempfile
from pathlib import Path

CACHE = Path(tempfile.mkdtemp())
COMMIT = "0123456789abcdef0123456789abcdef01234567"
LOCK = CACHE / "kernels.lock"
os.environ |= {"KERNELS_CACHE": str(CACHE), "HF_HUB_OFFLINE": "1"}

BUILD = CACHE / "kernels--example--activation" / "snapshots" / COMMIT / "build" / "torch-cpu"
BUILD.mkdir(parents=True)
(BUILD / "__init__.py").write_text("""
import torch


def silu(out, x):
    torch.mul(x, torch.sigmoid(x), out=out)


def exp(x):
    return x.exp()
""")
(BUILD / "metadata.json").write_text(
    json.dumps(
        {"name": "activation", "id": "activation_1", "version": 1, "license": "Apache-2.0", "python-depends": []}
        | {"backend": {"type": "cpu"}}
    )
)
LOCK.write_text(
    json.dumps(
        [
            {"dependency": {"repo-id": f"example/{name}", "version": 1}, "lock": {"commit": COMMIT}}
            for name in ("activation", "absent")
        ]
    )
)
os.environ["TEST_LOCK"] = str(LOCK)
