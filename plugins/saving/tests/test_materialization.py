"""`thunder.materialize`: models of the meta device get weights from state dicts, from files and by themselves."""

from __future__ import annotations

import dataclasses
import json
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

import thunder
from thunder_core.errors import OptionError, UnsupportedError
from thunder_core.passes.transform import Place, Transform
from thunder_saving import tensor_files


class Rotation(nn.Module):
    """A buffer that no state dict has, and a tensor that is none."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("frequencies", torch.empty(4), persistent=False)
        self.offset = torch.empty(4)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        self.frequencies = 10.0 ** -torch.arange(4.0)
        self.offset.fill_(0.5)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(11, 4, padding_idx=0)
        self.rotation = Rotation()
        self.attention = nn.MultiheadAttention(4, 2)
        self.norm = nn.BatchNorm1d(4)
        self.recurrent = nn.LSTM(4, 4)
        self.head = nn.Linear(4, 11)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = self.embedding(x) * self.rotation.frequencies + self.rotation.offset
        hidden = self.recurrent(self.attention(hidden, hidden, hidden)[0])[0]
        return self.head(self.norm(hidden.mean(1)))


class Tied(Net):
    def __init__(self) -> None:
        super().__init__()
        self.head.weight = self.embedding.weight
        self.first = [self.head.weight]


def on_meta(kind: type[nn.Module] = Net) -> Any:
    with torch.device("meta"):
        return kind()


def equal(model: nn.Module, expected: nn.Module) -> None:
    tensors = dict(model.named_parameters(remove_duplicate=False)) | dict(model.named_buffers())
    others = dict(expected.named_parameters(remove_duplicate=False)) | dict(expected.named_buffers())
    assert tensors.keys() == others.keys()
    for name, tensor in tensors.items():
        assert tensor.requires_grad == others[name].requires_grad
        torch.testing.assert_close(tensor, others[name], rtol=0, atol=0, msg=lambda text, name=name: f"{name}: {text}")
    x = torch.arange(10).view(2, 5)
    torch.testing.assert_close(model(x), expected(x), rtol=0, atol=0)


def as_file(state: dict[str, Any], folder: Path) -> Any:
    save_file(state, folder / "weights.safetensors")
    return folder / "weights.safetensors"


def as_folder(state: dict[str, Any], folder: Path) -> Any:
    save_file(state, folder / "model.safetensors")
    return str(folder)


def as_shards(state: dict[str, Any], folder: Path) -> Any:
    places = {name: f"part-{number % 3}.safetensors" for number, name in enumerate(state)}
    for file in set(places.values()):
        save_file({name: value for name, value in state.items() if places[name] == file}, folder / file)
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"metadata": {}, "weight_map": places}))
    return index


FORMS: dict[str, Callable[[dict[str, Any], Path], Any]] = {
    "state dict": lambda state, folder: state,
    "file": as_file,
    "folder": as_folder,
    "shards": as_shards,
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.slow
def test_weights_are_loaded(form: str, compiled: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tensor_files, "_MOST_MAPPED", 100)  # several parts for each tensor
    expected = Tied()
    expected(torch.arange(10).view(2, 5))  # changes the running statistics
    state = {name: value for name, value in expected.state_dict().items() if name != "head.weight"}
    given = FORMS[form](state, tmp_path)
    random = torch.get_rng_state()
    model = on_meta(Tied)
    weight, reference = model.embedding.weight, weakref.ref(model.embedding.weight)
    target = thunder.jit(model) if compiled else model
    assert thunder.materialize(target, given, device="cpu") is target
    assert torch.equal(torch.get_rng_state(), random)
    assert model.embedding.weight is weight is model.head.weight is model.first[0] is reference()
    equal(target, expected)
    assert weight.data_ptr() != state["embedding.weight"].data_ptr()


def test_own_initialization_is_that_of_the_constructor() -> None:
    torch.manual_seed(3)
    expected = Net()
    torch.manual_seed(3)
    equal(thunder.materialize(on_meta(), device="cpu"), expected)


class Custom(Net):
    """Has an initialization of its own, for all submodules and for a parameter without a module."""

    def __init__(self) -> None:
        super().__init__()
        self.token = nn.Parameter(torch.empty(2, 4))
        self.init_weights()

    def _init_weights(self, module: nn.Module) -> None:
        if isinstance(module, nn.Linear):
            nn.init.trunc_normal_(module.weight, std=0.02)
            module.bias.data.zero_()

    def init_weights(self, scale: float = 2.0) -> None:
        self.apply(self._init_weights)
        for row in self.token:  # in parts
            nn.init.constant_(row, scale)


def test_the_models_own_initialization() -> None:
    model = thunder.materialize(on_meta(Custom), device="cpu", dtype=torch.bfloat16)
    assert model.head.weight.dtype is model.rotation.frequencies.dtype is torch.bfloat16
    assert model.head.weight.float().abs().max() < 0.2
    assert (model.token == 2.0).all()
    assert (model.head.bias == 0).all()
    assert model.norm.num_batches_tracked.dtype is torch.long


class Lists(nn.Module):
    """Initializes the items of containers, and has an expanded buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.items = nn.ParameterList([torch.empty(2)])
        self.named = nn.ParameterDict({"a": torch.empty(2)})
        self.register_buffer("ids", torch.arange(4, device="cpu").expand(3, 4))

    def reset_parameters(self) -> None:
        for parameter in (*self.items, self.named["a"]):
            nn.init.ones_(parameter)


def test_items_of_containers() -> None:
    model = thunder.materialize(on_meta(Lists), device="cpu")
    assert model.items[0].tolist() == model.named["a"].tolist() == [1.0, 1.0]
    assert model.ids.stride() == (0, 1)


class Uninitialized(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(2, 2)
        self.scale = nn.Parameter(torch.ones(3))
        self.register_buffer("mask", torch.ones(3), persistent=False)

    def init_weights(self) -> None:
        self.mask.mul_(2.0)  # of what has no value
        self.scale[:2].data.fill_(1.0)


def test_what_nothing_initializes_is_named() -> None:
    model = on_meta(Uninitialized)
    with pytest.raises(UnsupportedError, match=r"writes these tensors: scale \(Uninitialized\), mask \(Uninit"):
        thunder.materialize(model, device="cpu")
    assert model.linear.weight.is_meta
    assert model.mask.is_meta
    with pytest.raises(UnsupportedError, match=r"and the state does not have them: mask \(Uninitialized\)\n"):
        thunder.materialize(model, Uninitialized().state_dict(), device="cpu")
    assert model.linear.weight.is_meta
    thunder.materialize(
        model, Uninitialized().state_dict(), device="cpu", initialize=lambda module: module.mask.fill_(3.0)
    )
    assert model.mask.tolist() == [3.0] * 3
    assert model.scale.tolist() == [1.0] * 3


WRONG: dict[str, tuple[Callable[[dict[str, Any], Path], Any], type[Exception], str]] = {
    "missing": (lambda state, _: {"head.bias": state["head.bias"]}, RuntimeError, r"Missing key.*embedding.*norm.weig"),
    "unexpected": (lambda state, _: {**state, "one": torch.ones(1), "two": 2}, RuntimeError, r"Unexpected.*one.*two"),
    "shape": (
        lambda state, folder: as_file({**state, "head.bias": torch.ones(3), "norm.bias": torch.ones(2)}, folder),
        RuntimeError,
        r"(?s)size mismatch for norm.bias.*size mismatch for head.bias",
    ),
    "kind": (lambda state, _: {**state, "head.bias": torch.ones(11).long()}, OptionError, "head.bias is torch.int64"),
    "no values": (lambda state, _: on_meta().state_dict(), OptionError, "embedding.weight is on the meta device"),
    "no file": (lambda state, folder: folder / "absent.safetensors", OptionError, "there is no file"),
    "empty folder": (lambda state, folder: folder, OptionError, "neither model.safetensors nor"),
    "another format": (
        lambda state, folder: (torch.save(state, folder / "weights.pt"), folder / "weights.pt")[1],
        OptionError,
        "weights.pt cannot be read as a safetensors file",
    ),
    "truncated": (
        lambda state, folder: (
            path := as_file(state, folder),
            path.write_bytes(path.read_bytes()[:-8]),
        )[0],
        OptionError,
        "cannot be read as a safetensors file",
    ),
    "incomplete shards": (
        lambda state, folder: (index := as_shards(state, folder), as_rewritten(index))[0],
        OptionError,
        "part-1.safetensors lacks tensors that the index",
    ),
    "path": (
        lambda state, folder: (
            index := as_shards(state, folder),
            index.write_text('{"weight_map": {"a": "../b.safetensors"}}'),
        )[0],
        OptionError,
        "not in a file of its folder",
    ),
    "object": (lambda state, _: 3, OptionError, "object of type int"),
}


def as_rewritten(index: Path) -> None:
    save_file({"a": torch.ones(1)}, index.parent / "part-1.safetensors")


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_state_changes_nothing(case: str, tmp_path: Path) -> None:
    make, error, text = WRONG[case]
    model = on_meta()
    before = dict(model.named_parameters()) | dict(model.named_buffers())
    with pytest.raises(error, match=text):
        thunder.materialize(thunder.jit(model), make(Net().state_dict(), tmp_path), device="cpu")
    after = dict(model.named_parameters()) | dict(model.named_buffers())
    assert [*map(id, before.values())] == [*map(id, after.values())]
    assert all(each.is_meta for each in (*after.values(), model.rotation.offset))


def test_an_interrupted_load_changes_nothing() -> None:
    model = on_meta()
    model.head = nn.Linear(4, 11)
    bias = model.head.bias.detach().clone()

    def stops(module: Any) -> None:
        module.head.bias.data.fill_(7.0)
        module.extra = 1
        module.norm.weight = nn.Parameter(torch.ones(4))
        raise KeyboardInterrupt

    weight = model.norm.weight
    with pytest.raises(KeyboardInterrupt):
        thunder.materialize(model, device="cpu", initialize=stops)
    assert model.norm.weight is weight
    assert weight.is_meta
    assert not hasattr(model, "extra")
    assert torch.equal(model.head.bias, bias)


def test_tied_weights_with_two_values() -> None:
    state = Tied().state_dict()
    state["head.weight"] = state["head.weight"] + 1
    with pytest.raises(OptionError, match=r"embedding.weight and head.weight are one tensor.*different values"):
        thunder.materialize(on_meta(Tied), state, device="cpu")


def test_what_has_data_is_kept() -> None:
    """Values that are there are moved; the initialization of the others does not change them."""
    model = on_meta()
    model.head = nn.Linear(4, 11)
    weight, values = model.head.weight, model.head.weight.detach().clone()
    thunder.materialize(model, device="cpu", dtype=torch.double)
    assert model.head.weight is weight
    torch.testing.assert_close(weight, values.double(), rtol=0, atol=0)
    state = {name: value.double() for name, value in Net().state_dict().items()}
    state["norm.num_batches_tracked"] = torch.tensor(4)
    thunder.materialize(model, state, device="cpu")
    torch.testing.assert_close(weight, state["head.weight"], rtol=0, atol=0)


def test_hooks_gradients_and_optimizers_are_kept() -> None:
    model = on_meta()
    model.head.bias.requires_grad_(False)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    seen: list[str] = []
    model.head.weight.register_hook(lambda gradient: seen.append("gradient"))
    model.head.weight.register_post_accumulate_grad_hook(lambda parameter: seen.append("accumulated"))
    handle = model.head.register_forward_hook(lambda *_: seen.append("forward"))
    model.head.weight.tag = "a"
    thunder.materialize(model, Net().state_dict(), device="cpu")
    before = model.head.weight.detach().clone()
    model(torch.arange(10).view(2, 5)).square().sum().backward()
    optimizer.step()
    assert seen == ["forward", "gradient", "accumulated"]
    assert not torch.equal(model.head.weight, before)
    assert not model.head.bias.requires_grad
    assert model.head.weight.tag == "a"
    handle.remove()


class Shared(nn.Module):
    """Parameters that are views of one storage."""

    def __init__(self) -> None:
        super().__init__()
        whole = torch.zeros(2, 6)
        self.rows, self.columns = nn.Parameter(whole[:, :4]), nn.Parameter(whole.t())

    def reset_parameters(self) -> None:
        nn.init.ones_(self.columns)


def test_shared_memory_stays_shared() -> None:
    model = thunder.materialize(on_meta(Shared), device="cpu")
    assert (model.rows == 1).all()
    model.rows.data.fill_(2.0)
    assert (model.columns[:4] == 2.0).all()
    assert (model.columns[4:] == 1.0).all()


def test_loaders_of_modules_run() -> None:
    """Modules that convert their state do so, as in `load_state_dict`."""

    class Renamed(nn.Linear):
        def _load_from_state_dict(self, state: Any, prefix: str, *args: Any) -> None:
            state[f"{prefix}weight"] = state.pop(f"{prefix}kernel") * 2
            super()._load_from_state_dict(state, prefix, *args)

        def get_extra_state(self) -> int:
            return 1

        def set_extra_state(self, state: int) -> None:
            self.extra = state

    model = Renamed(2, 2, device="meta")
    state = {"kernel": torch.ones(2, 2), "bias": torch.ones(2), "_extra_state": 5}
    thunder.materialize(model, state, device="cpu")
    assert (model.weight == 2.0).all()
    assert model.extra == 5


@dataclasses.dataclass(frozen=True)
class Capitals(Transform):
    """Has a state dict of its own: names in capitals."""

    name = "capitals"
    place = Place.BEFORE_CLAIMS

    def on_load_state_dict(self, state: Any) -> Any:
        return {name.lower(): value for name, value in state.items()}


def test_transforms_convert_the_state(tmp_path: Path) -> None:
    model = thunder.jit(nn.Linear(2, 2, device="meta"), transforms=[Capitals()])
    given = as_file({"WEIGHT": torch.ones(2, 2), "BIAS": torch.ones(2)}, tmp_path)
    thunder.materialize(model, given, device="cpu")
    assert model.weight.tolist() == [[1.0, 1.0], [1.0, 1.0]]


def test_what_is_refused() -> None:
    with pytest.raises(OptionError, match="takes a module"):
        thunder.materialize(thunder.jit(torch.relu))
    with pytest.raises(OptionError, match="meta device has no data"):
        thunder.materialize(on_meta(), device="meta")
    with pytest.raises(OptionError, match="no dtype of floating-point"):
        thunder.materialize(on_meta(), dtype=torch.int8)
    with pytest.raises(UnsupportedError, match="shapes of these lazy modules are unknown: 0"):
        thunder.materialize(nn.Sequential(nn.LazyLinear(3, device="meta")))


def test_files_are_read_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a file of 64 MiB, only a part is mapped besides the memory of the parameters."""
    monkeypatch.setattr(tensor_files, "_MOST_MAPPED", 1 << 23)
    save_file({f"{n}.weight": torch.full((1024, 2048), float(n)) for n in range(8)}, tmp_path / "model.safetensors")
    model = nn.Sequential(*[nn.Linear(2048, 1024, bias=False, device="meta") for _ in range(8)])
    Path("/proc/self/clear_refs").write_text("5")  # the peak from now on
    before = resident()["VmRSS"]
    thunder.materialize(thunder.jit(model), tmp_path, device="cpu")
    assert resident()["VmHWM"] - before < (64 + 8 + 16) * 1024
    assert resident()["VmRSS"] - before < (64 + 16) * 1024
    assert [int(layer.weight[5, 5]) for layer in model] == [*range(8)]


def resident() -> dict[str, int]:
    """Memory of this process in KiB."""
    lines = [line.split() for line in Path("/proc/self/status").read_text().splitlines()]
    return {line[0].rstrip(":"): int(line[1]) for line in lines if line[0] in ("VmHWM:", "VmRSS:")}
