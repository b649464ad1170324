"""Numbers of bytes in configurations."""

from __future__ import annotations

import pytest

from thunder.config import ThunderConfig


@pytest.mark.parametrize(
    ("value", "size"),
    [
        (1, 1),
        (22e9, 22 * 10**9),
        ("22 GiB", 22 * 2**30),
        ("22GiB", 22 * 2**30),
        ("500 MB", 500 * 10**6),
        ("1.5 kB", 1500),
        ("64 KiB", 65536),
        ("2 TB", 2 * 10**12),
        ("7 B", 7),
    ],
)
def test_a_number_or_text(value: object, size: int) -> None:
    assert ThunderConfig(memory=value).memory == size


@pytest.mark.parametrize("value", ["", "22", "GiB", "22 GiB free", "-1 MB", "0.1 B", "1,5 GB", True, 0.5, -1])
def test_nothing_else(value: object) -> None:
    with pytest.raises(ValueError, match=r"^memory[:=]"):
        ThunderConfig(memory=value)
