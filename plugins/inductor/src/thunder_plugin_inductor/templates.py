"""Inductor's templates of Triton kernels, parsed when they are used."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any
from unittest import mock

_NAME = "_template_from_string"


@contextmanager
def parsed_when_used() -> Iterator[None]:
    """Inside, modules that have templates of kernels are imported without parsing these.

    They are those of matrix products and attention on a GPU, which regions leave to PyTorch's libraries. To parse them
    is a third of the time in which Inductor's lowerings are imported: 1.00 s with it, 0.65 without.
    """
    from torch._inductor.codegen.common import KernelTemplate

    parse: Callable[[str], Any] | None = getattr(KernelTemplate, _NAME, None)
    if parse is None or find_spec("jinja2") is None:  # another version of Inductor; it knows what to do without Jinja
        yield
        return
    with mock.patch.object(KernelTemplate, _NAME, staticmethod(lambda source: _Template(parse, source))):
        yield


class _Template:
    """Has what the parsed template has; Inductor calls its ``render``."""

    def __init__(self, parse: Callable[[str], Any], source: str) -> None:
        self._parse, self._source, self._parsed = parse, source, None

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # of objects that are being copied
            raise AttributeError(name)
        if self._parsed is None:
            self._parsed = self._parse(self._source)
        return getattr(self._parsed, name)
