"""Inductor's templates of Triton kernels, parsed on first use."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any
from unittest import mock

from thunder_core.private_names import is_missing


@contextmanager
def parsed_when_used() -> Iterator[None]:
    """A context in which modules with templates of kernels are imported without parsing them.

    These templates are for matmuls and attention on a GPU, which regions leave to PyTorch's libraries. Parsing them
    takes a third of the import time of Inductor's lowerings: 1.00 s instead of 0.65 s.
    """
    from thunder_plugin_inductor.pytorch_internals import template_from_string

    if is_missing(template_from_string) or find_spec("jinja2") is None:  # Inductor supports missing Jinja
        yield
        return
    parse: Callable[[str], Any] = getattr(template_from_string.owner, template_from_string.name)
    with mock.patch.object(
        template_from_string.owner, template_from_string.name, staticmethod(lambda source: _Template(parse, source))
    ):
        yield


class _Template:
    """Has the attributes of the parsed template; Inductor calls its ``render``."""

    def __init__(self, parse: Callable[[str], Any], source: str) -> None:
        self._parse, self._source, self._parsed = parse, source, None

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # accessed while objects are copied
            raise AttributeError(name)
        if self._parsed is None:
            self._parsed = self._parse(self._source)
        return getattr(self._parsed, name)
