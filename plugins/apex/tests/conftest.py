"""Makes ``fake_apex`` importable, and puts it in Apex's place for all tests but those of the real one."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(autouse=True)
def _fake_apex(request: pytest.FixtureRequest) -> Iterator[None]:
    from fake_apex import installed

    if request.path.name == "test_cuda.py":
        yield
        return
    with installed():
        yield
