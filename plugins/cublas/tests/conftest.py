"""Makes ``fake_cublaslt`` importable, and puts it in the library's place for all tests but those of the real one.

Choices are kept for one test only.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(autouse=True)
def _fake_cublaslt(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("THUNDER_CACHE_DIR", str(tmp_path))
    from fake_cublaslt import installed

    if request.path.name in ("test_cuda.py", "test_real_library.py"):
        yield
        return
    with installed():
        yield
