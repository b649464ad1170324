"""Reads of modules: structure, attributes, hooks, parametrizations."""

from __future__ import annotations

import copy
import dataclasses
from types import MappingProxyType, SimpleNamespace

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrize


@dataclasses.dataclass
class Config:
    heads: int = 2
    unread: int = 0


class Layer(nn.Module):
    kind = "plain"

    def __init__(self, config):
        super().__init__()
        self.config = config
        self.linear = nn.Linear(4, 4)
        self.scale = 2
        self.unread = 1
        self.table = {"a": 1, "b": [2, 3]}
        self.items = [1, 2]
        self.register_buffer("offset", torch.ones(4))

    def forward(self, x):
        if self.kind == "plain":
            x = x + 1
        y = self.helper(x) * self.scale * self.config.heads + self.table["a"] + self.items[0]
        return y + self.offset

    def helper(self, x):
        return self.linear(x)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.config = Config()
        self.layers = nn.ModuleList(Layer(self.config) for _ in range(2))

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x


@pytest.fixture
def model():
    return Model()


def changed(entry, x, change):
    assert entry.hits(x), entry.reason(x)
    change()
    return not entry.hits(x)


def test_plain_attribute(observe, x, model):
    entry = observe(model, x)
    assert changed(entry, x, lambda: setattr(model.layers[1], "scale", 3))
    assert entry.reason(x) == "module.layers[1].scale: expected 2, got 3"


def test_unread_attributes_do_not_count(observe, x, model):
    entry = observe(model, x)
    model.layers[0].unread = 7
    model.layers[0].new = 7
    model.config.unread = 7
    model.other = nn.Linear(2, 2)
    assert entry.hits(x), entry.reason(x)


def test_nested_config_object(observe, x, model):
    entry = observe(model, x)
    assert changed(entry, x, lambda: setattr(model.config, "heads", 4))
    assert "heads" in entry.reason(x)
    model.config.heads = 2
    assert entry.hits(x)
    replaced = copy.copy(model.config)
    model.config = replaced
    for layer in model.layers:
        layer.config = replaced
    assert entry.hits(x), entry.reason(x)
    model.layers[1].config = Config(heads=9)
    assert not entry.hits(x)


def test_dict_and_list_entries(observe, x, model):
    entry = observe(model, x)
    assert changed(entry, x, lambda: model.layers[0].table.update(a=5))
    assert "table" in entry.reason(x)
    model.layers[0].table["a"] = 1
    assert changed(entry, x, lambda: model.layers[0].items.__setitem__(0, 9))


def test_class_attribute(observe, x, model, monkeypatch):
    entry = observe(model, x)
    assert changed(entry, x, lambda: monkeypatch.setattr(Layer, "kind", "other"))
    assert "kind" in entry.reason(x)
    monkeypatch.undo()
    assert entry.hits(x)
    model.layers[0].kind = "own"
    assert not entry.hits(x)


def test_deleted_attribute_is_a_miss(observe, x, model):
    entry = observe(model, x)
    assert changed(entry, x, lambda: delattr(model.layers[0], "scale"))
    assert "module.layers[0].scale: is missing" in entry.reason(x)


def test_structure(observe, x, model):
    entry = observe(model, x)
    assert changed(entry, x, lambda: model.layers.append(Layer(model.config)))
    del model.layers[2]
    assert entry.hits(x), entry.reason(x)
    del model.layers[1]
    assert not entry.hits(x)


def test_replaced_submodule(observe, x, model):
    entry = observe(model, x)
    model.layers[0].linear = nn.Linear(4, 4)
    assert entry.hits(x)
    model.layers[0].linear = nn.Linear(4, 4, bias=False)
    assert not entry.hits(x)
    model.layers[0].linear = nn.Identity()
    assert not entry.hits(x)


def test_order_of_children(observe, x):
    model = nn.Sequential(nn.ReLU(), nn.Tanh())
    entry = observe(model, x)
    model._modules = {"1": model._modules["1"], "0": model._modules["0"]}
    assert not entry.hits(x)


def test_train_and_eval(observe, x):
    model = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5))
    entry = observe(model, x)
    assert changed(entry, x, model.eval)
    assert entry.reason(x) == "module[1].training: expected True, got False"
    model.train()
    assert entry.hits(x)
    model[1].p = 0.1
    assert not entry.hits(x)


def test_training_of_modules_that_do_not_read_it(observe, x):
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    entry = observe(model, x)
    model.eval()
    assert entry.hits(x)


@pytest.mark.parametrize(
    "register",
    [
        lambda module: module.register_forward_hook(lambda module, args, output: output * 2),
        lambda module: module.register_forward_pre_hook(lambda module, args: None),
        lambda module: module.register_full_backward_hook(lambda module, gradients, outputs: None),
        lambda module: module.register_full_backward_pre_hook(lambda module, gradients: None),
    ],
)
def test_new_hook(observe, x, model, register):
    entry = observe(model, x)
    handle = register(model.layers[1].linear)
    assert not entry.hits(x)
    assert "hook" in entry.reason(x)
    handle.remove()
    assert entry.hits(x)


def test_global_hook(observe, x, model):
    entry = observe(model, x)
    handle = nn.modules.module.register_module_forward_hook(lambda module, args, output: None)
    try:
        assert not entry.hits(x)
    finally:
        handle.remove()
    assert entry.hits(x)


def test_existing_hook_and_what_it_reads(observe, x, model):
    settings = SimpleNamespace(factor=2)

    def hook(module, args, output):
        return output * settings.factor

    handle = model.layers[0].register_forward_hook(hook)
    entry = observe(model, x)
    assert entry.hits(x)
    settings.factor = 3
    assert not entry.hits(x)
    settings.factor = 2
    handle.remove()
    assert not entry.hits(x)


def test_replaced_forward(observe, x, model, monkeypatch):
    entry = observe(model, x)
    model.layers[0].forward = lambda x: x
    assert not entry.hits(x)
    del model.layers[0].forward
    assert entry.hits(x)
    monkeypatch.setattr(Layer, "forward", lambda self, x: x)
    assert not entry.hits(x)
    monkeypatch.undo()
    monkeypatch.setattr(nn.Linear, "forward", lambda self, x: x)
    assert not entry.hits(x)
    monkeypatch.undo()
    monkeypatch.setattr(Layer, "helper", lambda self, x: x)
    assert not entry.hits(x)
    monkeypatch.undo()
    model.layers[0].helper = lambda x: x
    assert not entry.hits(x)


class Double(nn.Module):
    def forward(self, weight):
        return weight * 2


def test_parametrization(observe, x):
    model = nn.Sequential(nn.Linear(4, 4))
    entry = observe(model, x)
    parametrize.register_parametrization(model[0], "weight", Double())
    assert not entry.hits(x)
    entry = observe(model, x)
    assert "module[0].parametrizations.weight.original" in entry.paths
    assert entry.hits(x)
    parametrize.remove_parametrizations(model[0], "weight")
    assert not entry.hits(x)


def test_replaced_and_retyped_parameters(observe, x, model):
    entry = observe(model, x)
    linear = model.layers[0].linear
    linear.weight = nn.Parameter(torch.zeros(4, 4))
    assert entry.hits(x)
    linear.weight.requires_grad_(False)
    assert not entry.hits(x)
    linear.weight = nn.Parameter(torch.zeros(4, 4, dtype=torch.float64))
    assert not entry.hits(x)
    assert "dtype" in entry.reason(x)
    linear.weight = nn.Parameter(torch.zeros(4, 4))
    linear.bias = None
    assert not entry.hits(x)
    linear.bias = nn.Parameter(torch.zeros(4))
    linear.bias.data = torch.zeros(4, dtype=torch.float16)
    assert not entry.hits(x)
    linear.bias.data = torch.zeros(4)
    assert entry.hits(x)
    model.layers[1].offset = None
    assert not entry.hits(x)


def test_bias_that_is_none(observe, x):
    model = nn.Sequential(nn.Linear(4, 4, bias=False))
    entry = observe(model, x)
    model[0].bias = nn.Parameter(torch.zeros(4))
    assert not entry.hits(x)


def test_tied_weights(observe, x):
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.first = nn.Linear(4, 4)
            self.second = nn.Linear(4, 4)
            self.second.weight = self.first.weight

        def forward(self, x):
            return self.second(self.first(x))

    model = Tied()
    entry = observe(model, x)
    assert entry.paths.count("module.first.weight") == 1
    assert "module.second.weight" not in entry.paths
    model.second.weight = nn.Parameter(model.first.weight.detach().clone())
    assert not entry.hits(x)
    assert entry.reason(x) == "module.second.weight: is no longer module.first.weight"


def test_shared_submodule(observe, x):
    shared = nn.Linear(4, 4)
    model = nn.Sequential(shared, nn.ReLU(), shared)
    entry = observe(model, x)
    model[2] = nn.Linear(4, 4)
    assert not entry.hits(x)


def test_plain_tensor_attribute_and_parameter_containers(observe, x):
    class Holder(nn.Module):
        def __init__(self):
            super().__init__()
            self.mask = torch.ones(4)
            self.listed = nn.ParameterList([torch.zeros(4), torch.ones(4)])
            self.named = nn.ParameterDict({"a": torch.zeros(4)})
            self.children_by_name = nn.ModuleDict({"one": nn.Linear(4, 4)})

        def forward(self, x):
            x = x * self.mask
            for parameter in self.listed:
                x = x + parameter
            for _, child in self.children_by_name.items():
                x = child(x)
            return x + self.named["a"]

    model = Holder()
    entry = observe(model, x)
    assert "module.mask" in entry.paths
    model.mask = torch.ones(1)
    assert not entry.hits(x)
    model.mask = torch.zeros(4)
    assert entry.hits(x)
    model.listed.append(torch.zeros(4))
    assert not entry.hits(x)


def test_recurrent_module(observe):
    model = nn.LSTM(4, 3, num_layers=2)
    x = torch.zeros(5, 2, 4)
    entry = observe(model, x)
    assert "module.weight_ih_l0" in entry.paths
    model.dropout = 0.5
    assert not entry.hits(x)


def test_absence_is_observed(observe, x):
    class Optional(nn.Module):
        def forward(self, x):
            if getattr(self, "flag", None) is not None:
                return x * 2
            if hasattr(self, "other"):
                return x * 3
            try:
                return x * self.third
            except AttributeError:
                return x

    for name in ("flag", "other", "third"):
        model = Optional()
        entry = observe(model, x)
        setattr(model, name, 5)
        assert not entry.hits(x), name
    model = Optional()
    entry = observe(model, x)
    model.unrelated = 5
    assert entry.hits(x)
    model.third = nn.Parameter(torch.zeros(4))
    assert not entry.hits(x)


def test_absence_of_what_the_class_has_itself(observe, x):
    """Classes have a ``__name__`` by their metaclass, their instances have none."""

    class Named(nn.Module):
        def forward(self, x):
            return x if getattr(self, "__name__", None) is None else x * 2

    model = Named()
    entry = observe(model, x)
    assert entry.hits(x)
    model.__name__ = "named"
    assert not entry.hits(x)


def test_computed_attribute_name(observe, x):
    class Computed(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale_0 = 1
            self.scale_1 = 2
            self.linear_0 = nn.Linear(4, 4)

        def forward(self, x):
            return getattr(self, f"linear_{0}")(x) * sum(getattr(self, "scale_" + str(i)) for i in range(2))

    model = Computed()
    entry = observe(model, x)
    model.scale_1 = 5
    assert not entry.hits(x)


def test_properties_and_cached_values(observe, x):
    class WithProperty(nn.Module):
        def __init__(self):
            super().__init__()
            self._scale = 2

        @property
        def scale(self):
            return self._scale

        def forward(self, x):
            return x * self.scale

    model = WithProperty()
    entry = observe(model, x)
    model._scale = 3
    assert not entry.hits(x)


def test_object_returned_by_a_call(observe, x):
    class Holder(nn.Module):
        def __init__(self):
            super().__init__()
            self._config = SimpleNamespace(inner=SimpleNamespace(scale=2))

        def settings(self):
            return self._config

        def forward(self, x):
            return x * self.settings().inner.scale

    model = Holder()
    entry = observe(model, x)
    model._config.inner.scale = 3
    assert not entry.hits(x)


def test_reads_through_objects_that_the_program_makes(observe, x):
    class Context:
        def __init__(self, config):
            self.config = config

        def scale(self):
            return self.config.scale

    class Holder(nn.Module):
        def __init__(self):
            super().__init__()
            self.config = SimpleNamespace(scale=2)

        def forward(self, x):
            return x * Context(self.config).scale()

    model = Holder()
    entry = observe(model, x)
    model.config.scale = 3
    assert not entry.hits(x)


def test_objects_in_containers(observe, x):
    class Holder(nn.Module):
        def __init__(self):
            super().__init__()
            self.stages = [SimpleNamespace(scale=1), SimpleNamespace(scale=2)]
            self.by_name = {"a": SimpleNamespace(scale=1)}

        def forward(self, x):
            for stage in self.stages:
                x = x * stage.scale
            return x * sum(stage.scale for stage in self.by_name.values())

    model = Holder()
    entry = observe(model, x)
    model.stages[1].scale = 5
    assert not entry.hits(x)
    model.stages[1].scale = 2
    model.by_name["a"].scale = 5
    assert not entry.hits(x)
    model.by_name["a"].scale = 1
    model.stages.append(SimpleNamespace(scale=1))
    assert not entry.hits(x)


def test_values_overwritten_before_they_are_read(observe, x):
    class Overwrites(nn.Module):
        def __init__(self):
            super().__init__()
            self.width = None

        def forward(self, x):
            self.width = x.shape[-1]
            return self.read(x)

        def read(self, x):
            return x * self.width

    model = Overwrites()
    entry = observe(model, x)
    assert model.width is None
    model.width = 17
    assert entry.hits(x), entry.reason(x)


def test_values_read_before_they_are_overwritten(observe, x):
    class Counter(nn.Module):
        def __init__(self):
            super().__init__()
            self.count = 0

        def forward(self, x):
            self.count += 1
            return self.read(x)

        def read(self, x):
            return x * self.count

    model = Counter()
    entry = observe(model, x)
    assert [write.value for write in entry.writes] == [1]
    assert model.count == 0
    model.count = 1
    assert not entry.hits(x)
    assert entry.reason(x) == "module.count: expected 0, got 1"


def test_config_with_lookup_of_its_own(observe, x):
    class Mapped:
        names = MappingProxyType({"hidden": "n_embd"})

        def __init__(self):
            self.n_embd = 4
            self.unread = 1

        def __getattr__(self, name):
            if name in type(self).names:
                return self.__dict__[type(self).names[name]]
            raise AttributeError(name)

    class Holder(nn.Module):
        def __init__(self):
            super().__init__()
            self.config = Mapped()

        def forward(self, x):
            return x * self.config.hidden

    model = Holder()
    entry = observe(model, x)
    model.config.unread = 2
    assert entry.hits(x)
    model.config.n_embd = 8
    assert not entry.hits(x)


def test_library_functions_read_everything(observe, x):
    class Holder(nn.Module):
        def __init__(self):
            super().__init__()
            self.config = Config()

        def forward(self, x):
            return x * sum(dataclasses.asdict(self.config).values())

    model = Holder()
    entry = observe(model, x)
    model.config.unread = 5
    assert not entry.hits(x)


def test_functional_call_does_not_disturb(observe, x):
    model = nn.Linear(4, 4)
    replacement = {"weight": torch.zeros(4, 4), "bias": torch.zeros(4)}

    def program(x, replacement):
        return torch.func.functional_call(model, replacement, (x,))

    entry = observe(program, x, replacement)
    assert entry.hits(x, replacement)
    assert entry.writes == ()
    assert not entry.hits(x, {"weight": torch.zeros(5, 4), "bias": torch.zeros(5)})


def test_callable_object_and_bound_method(observe, x):
    class Scaler:
        def __init__(self):
            self.scale = 2

        def __call__(self, x):
            return x * self.scale

        def method(self, x):
            return x * self.scale

    for make in (lambda scaler: scaler, lambda scaler: scaler.method):
        scaler = Scaler()
        entry = observe(make(scaler), x)
        scaler.scale = 3
        assert not entry.hits(x)
