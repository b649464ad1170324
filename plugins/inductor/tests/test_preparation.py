"""What is done before kernels need it, and what is not done before somebody does."""

from __future__ import annotations

import contextvars
import threading
from typing import Any

import pytest
import torch

from thunder_plugin_inductor import fusible, preparation
from thunder_plugin_inductor.options import InductorOptions
from thunder_plugin_inductor.pytorch_internals import inductor_config
from thunder_plugin_inductor.templates import parsed_when_used

KERNEL = '#include <torch/csrc/inductor/cpp_prefix.h>\nextern "C" void kernel(float* out) { out[0] = 5; }\n'


@pytest.mark.needs_compiler
@pytest.mark.slow
def test_headers_are_those_of_kernels() -> None:
    """No kernel looks for them again."""
    from torch._inductor import codecache

    prepared = preparation.preparation(InductorOptions())
    assert prepared is preparation.preparation(InductorOptions())
    assert prepared.headers.result() is None
    looked: Any = codecache._precompile_header.cache_info
    before = looked().misses
    codecache.CppPythonBindingsCodeCache.load_pybinding(["float*"], KERNEL)
    assert (before > 0, looked().misses) == (True, before)


@pytest.mark.parametrize("prepares", [True, False])
def test_the_first_operator_starts_it(monkeypatch: pytest.MonkeyPatch, prepares: bool) -> None:
    """Unless the kernels are for a GPU, or other processes compile them."""
    started: list[InductorOptions] = []
    options = InductorOptions(smallest=1)
    monkeypatch.setattr(preparation, "preparation", started.append)
    monkeypatch.setattr(fusible, "_reasons", {})
    for _ in range(2):
        assert fusible._unfusible_operator(torch.ops.aten.exp.default, options, prepares) is None
    assert started == ([options] if prepares else [])


def test_templates_are_parsed_when_they_are_used() -> None:
    jinja2 = pytest.importorskip("jinja2")
    from torch._inductor.codegen.common import KernelTemplate

    parse = KernelTemplate._template_from_string
    with parsed_when_used():
        good, bad = map(KernelTemplate._template_from_string, ("{{ one }} is {% if one %}set{% endif %}", "{% if %}"))
    assert KernelTemplate._template_from_string is parse
    assert good.render(one=1) == good.render(one=1) == "1 is set"
    with pytest.raises(jinja2.TemplateSyntaxError):
        bad.render()


def test_other_threads_never_see_the_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[bool] = []

    def copy_context() -> contextvars.Context:
        thread = threading.Thread(target=lambda: seen.append(inductor_config.max_autotune))
        thread.start()
        thread.join()
        return contextvars.Context()

    monkeypatch.setattr(preparation.contextvars, "copy_context", copy_context)
    monkeypatch.setattr(preparation, "find_vector_instructions", lambda: True)
    monkeypatch.setattr(preparation, "_precompile_headers", lambda: None)
    preparation.preparation.__wrapped__(InductorOptions(max_autotune=True))
    assert seen == [False]
