"""Makes ``fake_cudnn`` importable, and puts it in the library's place for all tests but those of the real one."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

REAL = ("test_cuda.py", "test_real_graphs.py")


@pytest.fixture(autouse=True)
def _fake_cudnn(request: pytest.FixtureRequest) -> Iterator[None]:
    from fake_cudnn import installed

    if request.path.name in REAL:
        yield
        return
    with installed():
        yield
