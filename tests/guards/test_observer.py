"""The observer's hook, its paths and its cost."""

from __future__ import annotations

import gc
import sys
import threading
import weakref
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from tests.calls import calls_of
from tests.runtime.young_heap import young_heap
from thunder_core.checks.source import ArgumentSource
from thunder_frontend.observe.observer import Observer
from thunder_frontend.observe.tensor_index import TensorIndex


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="later Pythons are observed through sys.monitoring")
def test_an_installed_profiler_is_called_and_restored(x):
    seen = []

    def profiler(frame, event, value):
        if event == "call":
            seen.append(frame.f_code.co_name)

    def program(x):
        return helper(x)

    def helper(x):
        return x + 1

    observer = Observer(program, (x,), {})
    sys.setprofile(profiler)
    try:
        with observer:
            program(x)
        assert sys.getprofile() is profiler
    finally:
        sys.setprofile(None)
    assert "helper" in seen


def test_cprofile_survives(x):
    import cProfile

    profiler = cProfile.Profile()
    model = nn.Linear(4, 4)
    profiler.enable()
    try:
        observer = Observer(model, (x,), {})
        with observer:
            model(x)
    finally:
        profiler.disable()
    assert observer.guards()
    assert sys.getprofile() is None


def test_hook_is_removed_after_an_exception(x):
    def program(x):
        raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"), Observer(program, (x,), {}):
        program(x)
    assert sys.getprofile() is None


def test_paused_code_is_not_observed(x):
    settings = SimpleNamespace(seen=1, hidden=2)
    observer = Observer(lambda x: x, (x, settings), {})

    def shown():
        return settings.seen

    def hidden():
        return settings.hidden

    with observer:
        shown()
        observer.pause()
        observer.pause()
        observer.resume()
        hidden()
        observer.resume()
    read = {guard.source.describe() for guard in observer.guards()}
    assert "args[1].seen" in read
    assert "args[1].hidden" not in read


def test_other_threads_are_not_observed(x):
    settings = SimpleNamespace(scale=2)
    begun, ended = [], []

    def program(x, settings):
        begun.append(True)
        while not ended:
            sys.getswitchinterval()  # lets the other thread run
        return x

    def other():
        while not begun:
            sys.getswitchinterval()
        ended.append(settings.scale)

    thread = threading.Thread(target=other)
    thread.start()
    observer = Observer(program, (x, settings), {})
    with observer:
        program(x, settings)
    thread.join()
    assert "settings.scale" not in {guard.source.describe() for guard in observer.guards()}


@young_heap()
def test_callbacks_of_the_garbage_collector_are_not_observed(x):
    """They run whenever memory is collected; libraries measure time in them."""
    settings = SimpleNamespace(seen=1, hidden=2)

    def collected(phase, info):
        settings.hidden += 1

    def program(x, settings):
        gc.collect()
        return settings.seen

    observer = Observer(program, (x, settings), {})
    gc.callbacks.append(collected)
    try:
        with observer:
            program(x, settings)
    finally:
        gc.callbacks.remove(collected)
    assert settings.hidden > 2
    read = {guard.source.describe() for guard in observer.guards()}
    assert "settings.seen" in read
    assert "settings.hidden" not in read


def test_paths_of_tensors(x):
    class Cache:
        def __init__(self):
            self.layers = [{"keys": torch.zeros(2)}]

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.blocks = nn.ModuleList([nn.BatchNorm1d(4)])
            self.plain = {"a": [torch.zeros(3)]}
            self.wrapped = (nn.Linear(2, 2),)

        def forward(self, x, cache):
            return x

    model, cache = Model(), Cache()
    observer = Observer(model, (x, cache), {"extra": [x + 1]})
    with observer:
        model(x, cache)
    for tensor, path in (
        (x, "x"),
        (cache.layers[0]["keys"], "cache.layers[0]['keys']"),
        (model.blocks[0].weight, "module.blocks[0].weight"),
        (model.blocks[0].running_mean, "module.blocks[0].running_mean"),
        (model.plain["a"][0], "module.plain['a'][0]"),
        (model.wrapped[0].bias, "module.wrapped[0].bias"),
        (model.blocks[0], "module.blocks[0]"),
        (cache, "cache"),
    ):
        source = observer.source_of(tensor)
        assert source.describe() == path
        assert source.read((x, cache), {}) is tensor
    assert observer.source_of(torch.zeros(1)) is None
    assert observer.source_of(object()) is None


@young_heap()
def test_entry_does_not_keep_tensors_alive(observe):
    model = nn.Linear(4, 4)
    x = torch.zeros(2, 4)
    entry = observe(model, x)
    prologue = entry.prologue
    input_reference, weight_reference = weakref.ref(x), weakref.ref(model.weight)
    del entry, x
    model.weight = nn.Parameter(torch.zeros(4, 4))
    gc.collect()
    assert input_reference() is None
    assert weight_reference() is None
    assert prologue.function((torch.zeros(2, 4),), {}) is not None


def test_cost_of_observing_many_frames(x):
    class Block(nn.Module):
        def __init__(self, config):
            super().__init__()
            self.config = config
            self.linear = nn.Linear(4, 4)

        def forward(self, x):
            if self.config.parallel:
                return x
            return self.step(x) if self.config.heads > 1 else x

        def step(self, x):
            return x

    config = SimpleNamespace(parallel=False, heads=2)

    def aliases_of(layers):
        model = nn.Sequential(*[Block(config) for _ in range(layers)])
        observer = Observer(model, (x,), {})
        with observer:
            model(x)
        return [guard for guard in observer.guards() if guard.kind == "alias"]

    assert len(aliases_of(200)) == 199, "one object on many paths is followed once"
    assert calls_of(lambda: aliases_of(200)) < 4.5 * calls_of(lambda: aliases_of(50))


def test_gradients_of_known_tensors_are_read_once():
    """However many tensors the program creates, whose paths are searched."""
    reads = []

    class Counted(torch.Tensor):
        @property
        def grad(self):
            reads.append(self)
            return None

    index = TensorIndex({}, [], lambda module, source: None)
    for number in range(5):
        index.index(torch.ones(1).as_subclass(Counted), ArgumentSource(number, f"x{number}"))
    owner = torch.ones(1, requires_grad=True)
    owner.grad = torch.ones(1)
    index.index(owner, ArgumentSource(5, "owner"))
    for _ in range(20):
        assert index.find(torch.ones(1)) is None
    found = index.find(owner.grad)
    assert found.describe().endswith("owner.grad")
    assert len(reads) == 5
