"""Each private name of PyTorch that Thunder uses exists, and behaves as Thunder takes for granted."""

from __future__ import annotations

import dataclasses
import inspect
import logging
import sys
import warnings
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar
from unittest import mock

import torch
import torch.utils.checkpoint
from torch.autograd import forward_ad
from torch.distributed._composable import contract, replicate
from torch.utils.checkpoint import checkpoint

import thunder
import thunder_core
from thunder_core import pytorch_internals
from thunder_testing import private_names_suite
from thunder_testing.private_names import called_through

_aten: Any = torch.ops.aten


def _fake(*shape: int) -> Any:
    mode = pytorch_internals.FakeTensorMode()
    return mode, mode.from_tensor(torch.zeros(shape))


def _raised(error: type[BaseException], call: Callable[[], Any]) -> None:
    try:
        call()
    except error:
        return
    raise AssertionError(f"{error.__name__} is not raised")


def _equal(found: Any, expected: Any) -> None:
    assert found == expected, f"{found!r}, not {expected!r}"


def _parameters(function: Any, *names: str) -> None:
    _equal(tuple(inspect.signature(function).parameters)[: len(names)], names)


# --- control flow


def higher_order_operator(operator: Any) -> None:
    assert isinstance(operator, torch._ops.HigherOrderOperator)
    called: list[Any] = []

    class Mode(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            called.append(func)
            return func

    x = torch.ones(2)
    args = ((x,), ()) if operator is pytorch_internals.map_impl else ((x,), (x,), ())
    with Mode():
        operator(lambda x: x, *args)
    _equal(called, [operator])


# --- TorchScript


def _script() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.jit.script(torch.nn.Linear(2, 3))


def script_method(cls: Any) -> None:
    method = _script().forward
    assert type(method) is cls
    assert "__call__" in vars(cls)
    assert [node.kind() for node in method.inlined_graph.nodes()][-1] == "aten::linear"


def scripted_class(cls: Any) -> None:
    assert type(_script()) is cls
    assert "__setattr__" in vars(cls)


# --- fake tensors


def fake_tensor_class(cls: Any) -> None:
    mode, fake = _fake(2, 3)
    assert type(fake) is cls
    assert fake.fake_mode is mode
    with mode:
        result = fake.t() @ fake
    assert type(result) is cls
    assert result.shape == (3, 3)
    assert fake.t().untyped_storage()._cdata == fake.untyped_storage()._cdata


def fake_mode(cls: Any) -> None:
    with cls(allow_non_fake_inputs=False) as mode:
        assert mode.cache_enabled is True
        assert mode.from_tensor(torch.ones(2)).shape == (2,)
        assert torch.empty(3).device.type == "cpu"
        assert type(torch.empty(3)).__name__ == "FakeTensor"


def shape_env(ShapeEnv: Any) -> None:
    names = pytorch_internals.NAMES.bind("DimDynamic"), pytorch_internals.NAMES.bind("ShapeSource")
    environment, source = _symbols(ShapeEnv, names)
    symbol = environment.create_symbol(5, source, names[0].DYNAMIC)
    size = environment.create_symintnode(symbol, hint=5)
    assert type(size) is torch.SymInt
    assert (size.node.expr, size.node.hint, size.node.maybe_as_int()) == (symbol, 5, None)
    assert size.node.shape_env is environment
    assert not environment.guards
    assert int(size) == 5
    assert len(environment.guards) == 1
    assert environment.replace(symbol) == 5
    assert environment._default_value_range().lower == 2


def _symbols(ShapeEnv: Any, names: tuple[Any, Any]) -> tuple[Any, Any]:
    @dataclasses.dataclass(frozen=True)
    class Place(names[1]):  # type: ignore[misc]
        @property
        def name(self) -> str:
            return "x"

        @property
        def guard_source(self) -> Any:
            return pytorch_internals.NAMES.bind("GuardSource").LOCAL

    return ShapeEnv(duck_shape=False, allow_scalar_outputs=False, allow_dynamic_output_shape_ops=False), Place()


def dim_dynamic(DimDynamic: Any) -> None:
    assert DimDynamic.DYNAMIC is not DimDynamic.STATIC


def shape_source(Source: Any) -> None:
    assert isinstance(Source, type)


def guard_source(GuardSource: Any) -> None:
    assert GuardSource.LOCAL is not GuardSource.CONSTANT


def min_max_constraint(Constraint: Any) -> None:
    bounds = pytorch_internals.NAMES.bind("ValueRanges")(2, 8)
    names = pytorch_internals.NAMES.bind("DimDynamic"), pytorch_internals.NAMES.bind("ShapeSource")
    environment, source = _symbols(pytorch_internals.NAMES.bind("ShapeEnv"), names)
    symbol = environment.create_symbol(5, source, names[0].DYNAMIC, Constraint(warn_only=False, vr=bounds))
    assert environment.var_to_range[symbol].upper == 8


def size_settings(settings: Any) -> None:
    from torch.fx.experimental.symbolic_shapes import guard_or_false

    bind = pytorch_internals.NAMES.bind
    environment, source = _symbols(bind("ShapeEnv"), (bind("DimDynamic"), bind("ShapeSource")))
    bounds = bind("StrictMinMaxConstraint")(warn_only=False, vr=bind("ValueRanges")(0, 2**62))
    symbol = environment.create_symbol(
        5, source, bind("DimDynamic").DYNAMIC, bounds, positive=None, do_not_specialize_zero_one=True
    )
    size = environment.create_symintnode(symbol, hint=5)
    with settings.patch(backed_size_oblivious=True):
        assert not guard_or_false(size == 5)
    assert not environment.guards
    assert size == 5
    assert environment.guards


def value_ranges(ValueRanges: Any) -> None:
    assert ValueRanges(2, 8).upper == 8


def python_printer(Printer: Any) -> None:
    bind = pytorch_internals.NAMES.bind
    names = bind("DimDynamic"), bind("ShapeSource")
    environment, source = _symbols(bind("ShapeEnv"), names)
    size = environment.create_symintnode(environment.create_symbol(5, source, names[0].DYNAMIC), hint=5)
    text = Printer().doprint((size // 2 + size % 3).node.expr)
    assert eval(text, {str(size): 5}) == 4


def enable_python_dispatcher(enable: Any) -> None:
    """A decomposition in Python takes the place of a composite kernel in C++."""
    operator, called = _aten.matmul.default, []

    def matmul(*args: Any) -> Any:
        called.append(args)
        return kernel(*args)

    key = torch._C.DispatchKey.CompositeImplicitAutograd
    kernel = operator.py_kernels[key]
    with mock.patch.dict(operator.py_kernels, {key: matmul}), mock.patch.dict(operator._dispatch_cache, clear=True):
        torch.ones(2, 2) @ torch.ones(2, 2)
        assert not called
        with enable():
            torch.ones(2, 2) @ torch.ones(2, 2)
    assert len(called) == 1


def asserts_in_modes(function: Any) -> None:
    """Modes see an assertion of a Python bool, not that of a tensor."""
    seen: list[Any] = []

    class Sees(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(func)
            return func(*args, **(kwargs or {}))

    with Sees():
        function(True, "of a bool")
        function(torch.tensor(True), "of a tensor")
    assert seen[0] is function
    assert seen.count(function) == 1


def data_dependent_output(error: Any) -> None:
    mode, fake = _fake(1)
    with mode:
        _raised(error, fake.item)


def dynamic_output_shape(error: Any) -> None:
    mode, fake = _fake(3)
    with mode:
        _raised(error, lambda: torch.nonzero(fake))


def unsupported_operator(error: Any) -> None:
    with torch.library._scoped_library("thunder_internals", "DEF") as library:
        library.define("no_fake(Tensor x) -> Tensor")
        library.impl("no_fake", lambda x: x.clone(), "CPU")
        mode, fake = _fake(1)
        with mode:
            _raised(error, lambda: torch.ops.thunder_internals.no_fake(fake))


def _quantized() -> torch.Tensor:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # deprecated, and the last kind of tensor without a fake
        return torch.quantize_per_tensor(torch.ones(2), 1.0, 0, torch.quint8)


def unsupported_fake(error: Any) -> None:
    mode = pytorch_internals.FakeTensorMode()
    assert issubclass(error, RuntimeError)
    _raised(error, lambda: mode.from_tensor(_quantized()))


def fake_tensor_log() -> None:
    records: list[logging.LogRecord] = []
    logger = logging.getLogger("torch._subclasses.fake_tensor")
    watch = lambda record: bool(records.append(record)) and False  # noqa: E731
    logger.addFilter(watch)
    try:
        mode = pytorch_internals.FakeTensorMode()
        with mode:
            _raised(Exception, lambda: torch.empty(2, 3) @ torch.empty(2, 3))
    finally:
        logger.removeFilter(watch)
    assert all(str(record.msg).startswith("failed while attempting to run meta") for record in records)


# --- modes


class _Functions(torch.overrides.TorchFunctionMode):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[Any] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen.append(func)
        return func(*args, **(kwargs or {}))


def disables_modes(disable: Any) -> None:
    with _Functions() as mode:
        with disable():
            torch.relu(torch.ones(1))
        assert not mode.seen
        torch.relu(torch.ones(1))
    assert torch.relu in mode.seen


class _Subclass(torch.Tensor):
    calls = 0

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        cls.calls += 1
        return super().__torch_function__(func, types, args, kwargs or {})


def disables_subclasses(disable: Any) -> None:
    value = torch.ones(1).as_subclass(_Subclass)
    _Subclass.calls = 0
    with _Functions() as mode, disable():
        torch.relu(value)
    assert _Subclass.calls == 0
    assert torch.relu in mode.seen


def makes_subclass(make: Any) -> None:
    value = torch.ones(2)
    made = make(_Subclass, value, True)
    assert type(made) is _Subclass
    assert made.requires_grad
    assert made.data_ptr() == value.data_ptr()
    _equal(torch.Tensor.__torch_dispatch__, _Subclass.__torch_dispatch__)


def function_enabled(enabled: Any) -> None:
    assert enabled()
    with pytorch_internals.DisableTorchFunctionSubclass():
        assert not enabled()


def functional_tensor(is_functional: Any) -> None:
    value = torch.ones(2)
    assert not is_functional(value)
    assert is_functional(torch._to_functional_tensor(value))


def enables_modes(enable: Any) -> None:
    with _Functions() as mode, pytorch_internals.DisableTorchFunction(), enable():
        torch.relu(torch.ones(1))
    assert torch.relu in mode.seen


def disabled_implementation(value: Any) -> None:
    _equal(torch.nn.Parameter.__torch_function__, value)


def function_stack(get: Any) -> None:
    with _Functions() as mode:
        assert get(pytorch_internals.len_torch_function_stack() - 1) is mode


def function_stack_length(length: Any) -> None:
    before = length()
    with _Functions():
        _equal(length(), before + 1)
    _equal(length(), before)


def pops_function_stack(pop: Any) -> None:
    mode = _Functions()
    mode.__enter__()
    assert pop() is mode


def pops_dispatch_stack(pop: Any) -> None:
    for mode in (_Operators(), pytorch_internals.FakeTensorMode()):
        mode.__enter__()
        assert pop(None) is mode
        _equal(pytorch_internals.len_torch_dispatch_stack(), 0)


def dispatch_stack_length(length: Any) -> None:
    with _Operators():
        _equal(length(), 1)
    _equal(length(), 0)


def function_mode_enabled(enabled: Any) -> None:
    assert not enabled()
    with _Functions():
        assert enabled()


def current_function_mode(current: Any) -> None:
    with _Functions() as mode:
        assert current() is mode


def device_context(cls: Any) -> None:
    with torch.device("meta"):
        assert isinstance(pytorch_internals.get_function_stack_at(0), cls)


class _Operators(pytorch_internals.TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[Any] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen.append(func)
        return func(*args, **(kwargs or {}))


def dispatch_mode(cls: Any) -> None:
    assert issubclass(_Operators, cls)
    with _Operators() as mode:
        torch.relu(torch.ones(1))
    assert _aten.relu.default in mode.seen


def disables_dispatch(disable: Any) -> None:
    with _Operators() as mode, disable():
        torch.relu(torch.ones(1))
    assert not mode.seen


def wrapper_subclass(make: Any) -> None:
    class Wrapper(torch.Tensor):
        @classmethod
        def __torch_dispatch__(cls, *args: Any) -> Any:
            return NotImplemented

    made = make(Wrapper, (2, 3), strides=(1, 2), dtype=torch.float64, device="meta", storage_size=0)
    _equal((type(made), tuple(made.shape), made.stride(), made.dtype), (Wrapper, (2, 3), (1, 2), torch.float64))


# --- functorch


def batches(point: Any) -> None:
    called_through(point, lambda: torch.vmap(torch.sin)(torch.ones(2)))


def wraps_for_grad(point: Any) -> None:
    called_through(point, lambda: torch.func.grad(torch.sin)(torch.ones(())))


def wrapped(is_wrapped: Any) -> None:
    seen = []
    torch.vmap(lambda x: seen.append(is_wrapped(x)) or x)(torch.ones(2))
    _equal((seen, is_wrapped(torch.ones(2))), ([True], False))


def interpreter_stack(peek: Any) -> None:
    assert peek() is None
    levels = []
    torch.vmap(lambda x: levels.append(peek().level()) or x)(torch.ones(2))
    _equal(levels, [1])


def clears_interpreters(clear: Any) -> None:
    def inside(x: torch.Tensor) -> torch.Tensor:
        with clear():
            assert pytorch_internals.peek_interpreter_stack() is None
        assert pytorch_internals.peek_interpreter_stack() is not None
        return x

    torch.vmap(inside)(torch.ones(2))


def interpreters(stack: Any) -> None:
    kinds = []
    torch.vmap(torch.func.grad(lambda x: kinds.extend(one.key() for one in stack()) or x.sum()))(torch.ones(2))
    types = pytorch_internals.TransformType
    _equal(kinds, [types.Vmap, types.Grad])


def unwrapped_tensor(unwrap: Any) -> None:
    seen = []
    torch.vmap(lambda x: seen.append(unwrap(x).shape) or x)(torch.ones(2))
    _equal(seen, [(2,)])


def batched_tensor(is_batched: Any) -> None:
    seen = []
    torch.vmap(lambda x: seen.append(is_batched(x)) or x)(torch.ones(2))
    torch.func.grad(lambda x: seen.append(is_batched(x)) or x)(torch.ones(()))
    _equal((seen, is_batched(torch.ones(2))), ([True, False], False))


def tensor_level(level: Any) -> None:
    seen = []
    torch.vmap(lambda x: seen.append(level(x)) or x)(torch.ones(2))
    _equal((seen, level(torch.ones(2))), ([1], -1))


def dead_wrapper(unwrap: Any) -> None:
    kept = []
    torch.func.grad(lambda x: kept.append(x) or x.sum())(torch.ones(2))
    assert pytorch_internals.is_functorch_wrapped_tensor(kept[0])
    assert not pytorch_internals.is_functorch_wrapped_tensor(unwrap(kept[0]))


def transform_types(types: Any) -> None:
    assert {"Vmap", "Grad", "Jvp"} <= set(types.__members__)


def zero_tensor(is_zero: Any) -> None:
    _equal((is_zero(torch._efficientzerotensor(2)), is_zero(torch.zeros(2))), (True, False))


def keys_of_dispatch(keys: Any) -> None:
    plain, lazy = (keys(tensor).raw_repr() for tensor in (torch.zeros(2), torch._efficientzerotensor(2)))
    assert keys(torch.ones(3, 4, requires_grad=True)).raw_repr() == plain != lazy


def batched_key(key: Any) -> None:
    """The key of batching rules; with Python kernels enabled, the dispatcher calls those of ``py_kernels``."""
    operator, calls = _aten.cumsum.default, []
    operator.py_kernels[key] = lambda tensor, *args: calls.append(args) or tensor
    operator._dispatch_cache.pop(key, None)
    try:
        with pytorch_internals.EnablePythonDispatcher():
            torch.vmap(lambda x: x.cumsum(0))(torch.ones(2, 3))
    finally:
        del operator.py_kernels[key]
        operator._dispatch_cache.pop(key, None)
    _equal(calls, [(0,)])
    _equal(torch.vmap(lambda x: operator._op_dk(key, x, 0))(torch.ones(2, 3)).tolist(), [[1, 2, 3]] * 2)


def kernels_in_python(read: Any) -> None:
    """Those of one operator, by key; the dispatcher calls them where Python kernels are enabled."""
    operator, key, calls = _aten.cumsum.default, pytorch_internals.BATCHED, []
    assert read(operator) is not read(_aten.cumprod.default)
    assert key not in read(operator)
    pytorch_internals.dispatch_cache(operator).pop(key, None)
    kernels = {key: lambda tensor, *args: calls.append(args) or tensor}
    with mock.patch.dict(read(operator), kernels), pytorch_internals.EnablePythonDispatcher():
        torch.vmap(lambda x: x.cumsum(0))(torch.ones(2, 3))
    pytorch_internals.dispatch_cache(operator).pop(key, None)
    _equal(calls, [(0,)])


def cache_of_dispatch(read: Any) -> None:
    """The kernel that was called for a key; the dispatcher looks for one again once it is removed."""
    operator, key, calls = _aten.cumprod.default, pytorch_internals.BATCHED, []

    def mapped() -> list[Any]:
        with pytorch_internals.EnablePythonDispatcher():
            torch.vmap(lambda x: x.cumprod(0))(torch.ones(2, 3))
        return calls

    read(operator).pop(key, None)
    _equal(mapped(), [])
    assert key in read(operator)
    with mock.patch.dict(operator.py_kernels, {key: lambda tensor, *args: calls.append(args) or tensor}):
        _equal(mapped(), [])
        del read(operator)[key]
        _equal(mapped(), [(0,)])
    del read(operator)[key]


def kernel_for_a_key(read: Any) -> None:
    call = read(_aten.cumsum.default)
    mapped = torch.vmap(lambda x: call(pytorch_internals.BATCHED, x, 0))
    _equal(mapped(torch.ones(2, 3)).tolist(), [[1, 2, 3]] * 2)


def current_interpreters(current: Any) -> None:
    found = []
    torch.vmap(lambda x: found.append((current().batch_size(), current().level())) or x)(torch.ones(3))
    _equal(found, [(3, 1)])


def zero_tangents(zeros: Any) -> None:
    """Zeros with the strides of another tensor, and the batch of a first one."""
    result = zeros(torch.ones(3, 5), torch.ones(2, 4).t(), self_num_batch_dims=1)
    _equal((tuple(result.shape), result.stride(), result.any().item()), ((3, 4, 2), (8, 1, 4), False))


def maps_functions(helper: Any) -> None:
    def rule(info: Any, dims: Any, x: torch.Tensor, number: int) -> Any:
        _equal((info.batch_size, dims, tuple(x.shape)), (3, (1, None), (2, 3)))
        return x * number, 1

    current = pytorch_internals.current_interpreter
    double = torch.vmap(lambda x: helper(current(), rule, _aten.mul.Scalar, x, 2), in_dims=1)
    _equal(double(torch.ones(2, 3)).tolist(), [[2, 2]] * 3)


def forces_dispatch_keys(guard: Any) -> None:
    before = _dispatch_keys()
    with guard(*map(torch._C.DispatchKeySet, (torch._C.DispatchKey.Python, torch._C.DispatchKey.Conjugate))):
        assert _dispatch_keys() != before
    assert _dispatch_keys() == before


def included_keys(included: Any) -> None:
    with pytorch_internals.ForceDispatchKeyGuard(
        torch._C.DispatchKeySet(torch._C.DispatchKey.Conjugate), pytorch_internals.dispatch_tls_local_exclude_set()
    ):
        assert included().has(torch._C.DispatchKey.Conjugate)


def excluded_keys(excluded: Any) -> None:
    keys = pytorch_internals.dispatch_tls_local_include_set()
    with pytorch_internals.ForceDispatchKeyGuard(keys, torch._C.DispatchKeySet(torch._C.DispatchKey.Conjugate)):
        assert excluded().has(torch._C.DispatchKey.Conjugate)


def _dispatch_keys() -> tuple[Any, Any]:
    keys = pytorch_internals.dispatch_tls_local_include_set(), pytorch_internals.dispatch_tls_local_exclude_set()
    return keys[0].raw_repr(), keys[1].raw_repr()


def argument_slices(slices: Any) -> None:
    _equal(slices((1, 2, 3), (0, 2), as_tuple=False), (1, 3))
    _equal(slices((1, 2, 3), 1, as_tuple=False), 2)


def tensor_outputs(check: Any) -> None:
    check([torch.ones(1)], "f")
    _raised(RuntimeError, lambda: check([], "f"))
    _raised(RuntimeError, lambda: check([1], "f"))


# --- settings


def autocast_devices(devices: Any) -> None:
    assert {"cpu", "cuda"} <= set(devices())


def any_autocast(enabled: Any) -> None:
    assert not enabled()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert enabled()


def _follows(owner: Any, name: str) -> Callable[[Any], None]:
    """A check that a getter gives what was assigned to a public attribute."""

    def check(getter: Any) -> None:
        before = getattr(owner, name)
        try:
            for value in (True, False):
                setattr(owner, name, value)
                _equal(getter(), value)
        finally:
            setattr(owner, name, before)

    return check


def _switched(switch: Callable[[bool], Any]) -> Callable[[Any], None]:
    def check(getter: Any) -> None:
        before = getter()
        try:
            for value in (True, False):
                switch(value)
                _equal(getter(), value)
        finally:
            switch(before)

    return check


def _true_inside(scope: Callable[[], Any], *, inside: bool = True) -> Callable[[Any], None]:
    def check(getter: Any) -> None:
        _equal(getter(), not inside)
        with scope():
            _equal(getter(), inside)

    return check


@contextmanager
def without_onednn() -> Iterator[None]:
    """As `torch.backends.mkldnn.flags`, which also sets TF32 and warns where there is none."""
    before = torch.backends.mkldnn.set_flags(_enabled=False)[0]
    try:
        yield
    finally:
        torch.backends.mkldnn.set_flags(_enabled=before)


def matmul_precision(getter: Any) -> None:
    before = torch.get_float32_matmul_precision()
    try:
        torch.set_float32_matmul_precision("medium")
        _equal(getter(), "medium")
    finally:
        torch.set_float32_matmul_precision(before)


def deterministic(getter: Any) -> None:
    _switched(torch.use_deterministic_algorithms)(getter)


def deterministic_warns(getter: Any) -> None:
    try:
        torch.use_deterministic_algorithms(True, warn_only=True)
        assert getter()
    finally:
        torch.use_deterministic_algorithms(False)
    assert not getter()


def overrideable(getter: Any) -> None:
    with torch.nn.attention.sdpa_kernel([torch.nn.attention.SDPBackend.MATH]):
        assert getter() is False
    assert getter() is True


def fast_path() -> None:
    before = torch.backends.mha.get_fastpath_enabled()
    try:
        torch.backends.mha.set_fastpath_enabled(not before)
        assert vars(torch.backends.mha)["_is_fastpath_enabled"] is not before
    finally:
        torch.backends.mha.set_fastpath_enabled(before)


def sets_grad(function: Any) -> None:
    with _Functions() as mode, torch.no_grad():
        pass
    assert function in mode.seen, "torch.no_grad does not call it where modes see it"


def sets_cudnn(function: Any) -> None:
    before = torch.backends.cudnn.enabled
    function(not before)
    assert torch.backends.cudnn.enabled is not before
    function(before)


def _global_hooks(name: str, register: Callable[[Any], Any]) -> Callable[[], None]:
    def check() -> None:
        hooks = vars(torch.nn.modules.module)[name]
        handle = register(lambda *args: None)
        try:
            assert vars(torch.nn.modules.module)[name] is hooks
            assert len(hooks) == 1
        finally:
            handle.remove()
        assert not hooks

    return check


def dual_level(point: Any) -> None:
    assert point.value == -1
    with torch.autograd.forward_ad.dual_level():
        assert point.value == 0


def global_state_guard(cls: Any) -> None:
    check = cls().check
    assert check()
    with torch.no_grad():
        assert not check()


def tensor_guards(cls: Any) -> None:
    one = torch.ones(2, 3)
    check = cls(one, dynamic_dims_sizes=None, dynamic_dims_strides=None).check
    assert check(one)
    assert check(torch.zeros(2, 3))
    assert not check(torch.ones(3, 2))
    assert not check(one.double())


# --- tensors


def base(read: Any) -> None:
    value = torch.ones(2)
    assert read(value) is None
    assert read(value[:1]) is value


def base_getter(getter: Any) -> None:
    value = torch.ones(2)
    assert getter(value[:1]) is value
    with _Functions() as mode:
        getter(value)
    assert mode.seen == [getter]


def version(read: Any) -> None:
    value = torch.ones(2)
    before = read(value)
    value.add_(1)
    _equal(read(value), before + 1)


def tensor_identity(read: Any) -> None:
    value = torch.ones(2)
    view = value[:1]
    assert read(value) == read(view._base) != read(view)


def swaps_contents(swap: Any) -> None:
    """Objects keep class and attributes, also those that are referenced weakly."""
    tensor, other = torch.nn.Parameter(torch.empty(2, device="meta")), torch.ones(3).requires_grad_()
    tensor.tag, reference = 1, weakref.ref(tensor)
    swap(tensor, other)
    assert (tensor.shape, other.shape, tensor.device.type, tensor.tag) == ((3,), (2,), "cpu", 1)
    assert type(tensor) is torch.nn.Parameter
    assert reference() is tensor


def storage_identity(read: Any) -> None:
    value = torch.ones(2)
    assert read(value.untyped_storage()) == read(value[:1].untyped_storage()) != read(torch.ones(2).untyped_storage())


def generator_identity(read: Any) -> None:
    """Operators get a generator as another object."""
    seen: list[Any] = []

    class Sees(pytorch_internals.TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(kwargs["generator"])
            return func(*args, **kwargs)

    value = torch.Generator()
    with Sees():
        torch.rand(2, generator=value)
    assert read(seen[0]) == read(value) != read(torch.Generator())


def is_view(check: Any) -> None:
    value = torch.ones(2)
    assert check(value[:1])
    assert not check(value)
    assert not check(value.detach().clone())


def accumulation_hooks(read: Callable[[torch.Tensor], Any]) -> None:
    x = torch.ones(2, requires_grad=True)
    assert not read(x)
    x.register_post_accumulate_grad_hook(print)
    _equal(list(read(x).values()), [print])


def backward_hooks(read: Any) -> None:
    value = torch.ones(2, requires_grad=True)
    assert not read(value)
    value.register_hook(lambda g: g)
    assert len(read(value)) == 1


def sets_accumulation_hooks() -> None:
    seen: list[Any] = []
    leaf, hook = torch.ones(2, requires_grad=True), seen.append
    leaf._post_accumulate_grad_hooks = {0: hook}
    leaf.sum().backward()
    assert seen == [leaf]


def neg_view(function: Any) -> None:
    value = torch.ones(2)
    assert function(value).is_neg()
    assert torch.equal(function(value), -value)
    assert function(value).data_ptr() == value.data_ptr()


def alias(check: Any) -> None:
    value = torch.ones(4)
    assert check(value, value[2:])
    assert not check(value, value.clone())


def creation_meta(members: Any) -> None:
    assert members.DEFAULT != members.NO_GRAD_MODE


def reads_creation(read: Any) -> None:
    value = torch.ones(2, requires_grad=True).clone()
    with torch.no_grad():
        hidden = value[:1]
    _equal(read(value[:1]), pytorch_internals.CreationMeta.DEFAULT)
    _equal(read(hidden), pytorch_internals.CreationMeta.NO_GRAD_MODE)


def sets_creation(write: Any) -> None:
    view = torch.ones(2, requires_grad=True).clone()[:1]
    write(view, pytorch_internals.CreationMeta.NO_GRAD_MODE)
    _raised(RuntimeError, lambda: view.add_(1))


def storage_length(function: Any) -> None:
    _equal(function((2, 3), (4, 1), 5), 5 + 4 + 2 + 1)


# --- autograd


class _Double(torch.autograd.Function):
    asked: ClassVar[Any] = None

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x + y

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        _Double.answers.append(_Double.asked(ctx))
        return grads[0], grads[0]

    answers: ClassVar[list[Any]] = []


def _in_backward(asked: Callable[[Any], Any], run: Callable[[torch.Tensor, torch.Tensor], Any]) -> list[Any]:
    _Double.asked, _Double.answers = asked, []
    x, y = torch.ones(1, requires_grad=True), torch.ones(1, requires_grad=True)
    run(x * 2, y * 2)
    return _Double.answers


def keeps_graph(asked: Any) -> None:
    def run(x: torch.Tensor, y: torch.Tensor) -> None:
        out = _Double.apply(x, y)
        out.backward(retain_graph=True)
        out.backward()

    _equal(_in_backward(lambda ctx: asked(), run), [True, False])


def executes_node(asked: Any) -> None:
    def run(x: torch.Tensor, y: torch.Tensor) -> None:
        torch.autograd.grad(_Double.apply(x, y).sum(), [x.grad_fn.next_functions[0][0].variable])  # type: ignore[union-attr]

    def both(ctx: Any) -> list[bool]:
        return [asked(edge[0]) for edge in ctx.next_functions]

    _equal(_in_backward(both, run), [[True, False]])


def default_hooks(top: Any) -> None:
    assert top(False) is None
    assert top(True) is None
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t):
        assert top(True) is not None


# --- replaced while a program is recorded


def checkpoint_generator(point: Any) -> None:
    _parameters(point.value, "fn", "preserve_rng_state", "context_fn", "determinism_check", "debug", "early_stop")
    x = torch.ones(1, requires_grad=True)
    called_through(point, lambda: checkpoint(torch.sin, x, use_reentrant=False))
    assert torch.utils.checkpoint.noop_context_fn() is not None


def checkpoint_of_tuples(point: Any) -> None:
    _parameters(point.value, "fn", "args", "kwargs")
    x = torch.ones(1, requires_grad=True)
    calls = called_through(point, lambda: checkpoint(torch.sin, x, use_reentrant=False))
    _equal(calls[0][0][1], (x,))


def early_stop(point: Any) -> None:
    assert point.value is None
    with torch.utils.checkpoint.set_checkpoint_early_stop(False):
        assert point.value is False


def backward_hook_class(point: Any) -> None:
    layer = torch.nn.Linear(1, 1)
    layer.register_full_backward_hook(lambda *args: None)
    ((args, kwargs),) = called_through(point, lambda: layer(torch.ones(1)))
    assert args[0] is layer
    assert len(args[1]) == 1
    assert not args[2]
    assert not kwargs
    assert {"setup_input_hook", "setup_output_hook"} <= set(dir(point.value))


def applies_on_tensors(function: Any) -> None:
    _parameters(function, "self", "fn", "args")


def compiling_flag(point: Any) -> None:
    assert not torch.compiler.is_compiling()
    assert point.value is False
    setattr(point.owner, point.name, True)
    try:
        assert torch.compiler.is_compiling()
    finally:
        setattr(point.owner, point.name, False)


def compile_stance(point: Any) -> None:
    before = point.value
    _equal(before.stance, "default")
    compiled = torch.compile(lambda x: x + torch.compiler.is_dynamo_compiling(), backend="eager")
    setattr(point.owner, point.name, type(before)("force_eager"))
    try:
        _equal(compiled(torch.zeros(1)).item(), 0)
    finally:
        setattr(point.owner, point.name, before)
    _equal(compiled(torch.zeros(1)).item(), 1)


def stance_class(cls: Any) -> None:
    _equal(cls("force_eager").stance, "force_eager")


def disabled(cls: Any) -> None:
    called = []

    def function(x: Any) -> Any:
        return x + 1

    def noting() -> None:
        called.append(sys._getframe(1))

    with mock.patch.object(torch.compiler, "is_exporting", noting):
        _equal(torch.compiler.disable(function, reason="a reason")(1), 2)
    (frame,) = called
    code = next(each for each in cls.__call__.__code__.co_consts if getattr(each, "co_name", "") == "_fn")
    assert frame.f_code is code
    assert frame.f_locals["fn"] is function
    _equal((frame.f_locals["args"], frame.f_locals["kwargs"]), ((1,), {}))
    assert frame.f_locals["self"].wrapping
    assert not cls(wrapping=False).wrapping


def disabled_alone(wrapper: Any) -> None:
    called = []

    def function(x: Any, y: Any = 0) -> Any:
        return x + y

    def noting() -> None:
        called.append(sys._getframe(1))

    with mock.patch.object(torch.compiler, "is_exporting", noting):
        _equal(torch.compiler.disable(function, recursive=False)(1, y=2), 3)
    (frame,) = called
    name = "nonrecursive_disable_wrapper"
    assert frame.f_code is next(each for each in wrapper.__code__.co_consts if getattr(each, "co_name", "") == name)
    assert frame.f_locals["fn"] is function
    _equal((frame.f_locals["args"], frame.f_locals["kwargs"]), ((1,), {"y": 2}))


def backends(held: Any) -> None:
    class Backend:
        count = 0

        def reset(self) -> None:
            self.count += 1

    backend = Backend()
    held[id(backend)] = backend
    torch.compiler.reset()
    _equal((backend.count, len(held)), (1, 0))


def skipped_code(set_strategy: Any) -> None:
    graphs = []

    def backend(graph: Any, inputs: Any) -> Any:
        graphs.append(graph)
        return graph

    def inner(x: torch.Tensor) -> torch.Tensor:
        return x.sin()

    def skipped(x: torch.Tensor) -> torch.Tensor:
        return inner(x)

    actions = pytorch_internals.FrameAction
    set_strategy(skipped.__code__, pytorch_internals.FrameExecStrategy(actions.SKIP, actions.SKIP))
    torch.compile(skipped, backend=backend)(torch.ones(2))
    _equal(len(graphs), 0)


def skipped_function() -> None:
    def inner(x: torch.Tensor) -> torch.Tensor:
        return x.sin()

    inner._torchdynamo_disable = True  # type: ignore[attr-defined]
    inner._torchdynamo_disable_msg = "a text"  # type: ignore[attr-defined]
    compiled = torch.compile(lambda x: inner(x) + 1, backend="eager", fullgraph=True)
    _raised(torch._dynamo.exc.Unsupported, lambda: compiled(torch.ones(1)))


def tracing(is_tracing: Any) -> None:
    seen = []
    assert not is_tracing()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.jit.trace(lambda x: seen.append(is_tracing()) or x + 1, torch.ones(1), check_trace=False)
    _equal(seen, [True])


def symbolic_tracing(is_tracing: Any) -> None:
    seen = []
    assert not is_tracing()
    torch.fx.symbolic_trace(lambda x: seen.append(is_tracing()) or x + 1)
    _equal(seen, [True])


def _encode(**options: Any) -> None:
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        layer = torch.nn.TransformerEncoderLayer(4, 2, 8, batch_first=True)
        torch.nn.TransformerEncoder(layer, 1).eval()(torch.ones(1, 3, 4), **options)


def parses_to(parse: Any) -> None:
    """It parses the arguments of `Tensor.to` into a device, a dtype and flags."""
    _equal(parse(torch.float64), (None, torch.float64, False, None))
    _equal(parse("cpu", non_blocking=True), (torch.device("cpu"), None, True, None))
    _equal(parse(torch.ones(2, device="meta")), (torch.device("meta"), torch.float32, False, None))


def nested_tensors(point: Any) -> None:
    mask = torch.tensor([[False, False, True]])
    ((args, _), *_rest) = called_through(point, lambda: _encode(src_key_padding_mask=mask))
    assert args[0].shape == (1, 3, 4)
    assert args[1].dtype is torch.bool


def causal_mask(point: Any) -> None:
    _parameters(point.value, "mask", "is_causal", "size")
    called_through(point, lambda: _encode(mask=torch.zeros(3, 3)))


# --- modules


def _module_dictionary(name: str, fill: Callable[[torch.nn.Module], Any]) -> Callable[[], None]:
    def check() -> None:
        module = torch.nn.Linear(1, 1)
        before = len(vars(module)[name])
        fill(module)
        _equal(len(vars(module)[name]), before + 1)

    return check


def own_hooks() -> None:
    layer = torch.nn.Linear(1, 1)
    _equal(layer._get_backward_hooks(), ([], []))
    layer.register_full_backward_hook(print)
    _equal(layer._get_backward_hooks(), ([print], []))


def own_pre_hooks() -> None:
    layer = torch.nn.Linear(1, 1)
    _equal(layer._get_backward_pre_hooks(), [])
    layer.register_full_backward_pre_hook(print)
    _equal(layer._get_backward_pre_hooks(), [print])


def _calls_module(name: str) -> Callable[[], None]:
    def check() -> None:
        names = set()

        class Layer(torch.nn.Module):
            def forward(self, x: Any) -> Any:
                frame = inspect.currentframe()
                while frame is not None:
                    names.add(frame.f_code.co_name)
                    frame = frame.f_back
                return x

        Layer()(1)
        assert name in names, f"{name} is not among the frames of a module's call"

    return check


def metadata() -> None:
    state = torch.nn.BatchNorm1d(1).state_dict()
    _equal(state._metadata[""]["version"], 2)  # type: ignore[attr-defined]


# --- operators


def schema(read: Any) -> None:
    found = read(_aten.add_.Tensor)
    _equal((found.name, found.overload_name, found.is_mutable), ("aten::add_", "Tensor", True))
    assert found.arguments[0].alias_info.is_write
    assert found.arguments[2].kwarg_only
    assert found.returns[0].alias_info


def custom_operator(cls: Any) -> None:
    assert isinstance(_custom(), cls)


def custom_overload(read: Any) -> None:
    operator = _custom()
    assert read(operator) is torch.ops.thunder_internals.twice.default


def custom_operators(table: Any) -> None:
    operator = _custom()
    assert table["thunder_internals::twice"] is operator


def kernel_of_custom_operator(read: Any) -> None:
    x = torch.ones(2)
    assert torch.equal(read(_custom())(x), x * 2)


def kernels_by_device(read: Any) -> None:
    operator, x = _custom(), torch.ones(2)
    operator.register_kernel("cpu", lambda x: x * 3)
    assert torch.equal(read(operator)["cpu"](x), x * 3)


def derivative_of_custom_operator(read: Any) -> None:
    operator = _custom()
    assert read(operator) is None
    operator.register_autograd(custom_operators)
    assert read(operator) is custom_operators


def setup_context_of_custom_operator(read: Any) -> None:
    operator = _custom()
    assert read(operator) is None
    operator.register_autograd(custom_operators, setup_context=kernels_by_device)
    assert read(operator) is kernels_by_device


def batching_rule_of_custom_operator(read: Any) -> None:
    operator = _custom()
    assert read(operator) is None
    operator.register_vmap(kernels_by_device)
    assert read(operator) is kernels_by_device


def python_kernel_keys(keys: Any) -> None:
    library = torch.library.Library("thunder_internals_keys", "FRAGMENT")
    library.define("twice(Tensor x) -> Tensor")
    library.define("twice.other(Tensor x, int n) -> Tensor")
    library.impl("twice", lambda x: x * 2, "CPU")
    library.impl("twice.other", lambda x, n: x * 2, "CPU")
    assert {"thunder_internals_keys/twice/CPU", "thunder_internals_keys/twice.other/CPU"} <= set(keys)


def _custom() -> Any:
    @torch.library.custom_op("thunder_internals::twice", mutates_args=())
    def twice(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    return twice


def writes_several(function: Any) -> None:
    targets = [torch.zeros(2), torch.zeros(3)]
    function(targets, [torch.ones(2), torch.ones(3)])
    assert [(target.sum().item(), target._version) for target in targets] == [(2.0, 1), (3.0, 1)]


def core_decompositions(table: Any) -> None:
    assert _aten.addcmul.default in dict(table())
    assert _aten.mm.default not in dict(table())


def operator_list(names: Callable[[], list[str]]) -> None:
    assert {"aten::relu", "aten::add.Tensor", "aten::threshold_backward"} <= set(names())


def kernel_question(asked: Any) -> None:
    assert asked("aten::mm", "AutocastCUDA")
    assert not asked("aten::relu", "AutocastCUDA")


def tensor_base(owner: Any) -> None:
    assert owner in torch.Tensor.__mro__
    assert "relu" in vars(owner)


def variable_functions(owner: Any) -> None:
    assert owner.relu is torch.relu
    assert owner.add is torch.add


def _namespace(name: str, member: str) -> Callable[[], None]:
    return lambda: _equal(callable(getattr(getattr(torch._C, name), member)), True)


def _operator(schema_start: str) -> Callable[[Any], None]:
    return lambda operator: _equal(str(operator._schema).startswith(schema_start), True)


def _packet(name: str) -> Callable[[], None]:
    return lambda: _equal(isinstance(getattr(_aten, name), torch._ops.OpOverloadPacket), True)


def native_attention(operator: Any) -> None:
    names = [argument.name for argument in operator._schema.arguments[:10]]
    expected = "query key value embed_dim num_head qkv_weight qkv_bias proj_weight proj_bias mask"
    _equal(" ".join(names), expected)


def _softmax_backward(forward: Callable[..., torch.Tensor]) -> Callable[[Any], None]:
    def check(function: Any) -> None:
        x, g = torch.randn(2, 3, requires_grad=True), torch.randn(2, 3)
        y = forward(x, 1)
        assert torch.equal(function(g, y.detach(), 1, x.dtype), torch.autograd.grad(y, x, g)[0])

    return check


# --- trees


def registers_node(function: Any) -> None:
    class Pair:
        def __init__(self, values: list[int]) -> None:
            self.values = values

    function(Pair, lambda pair: (pair.values, None), lambda values, context: Pair(list(values)))
    _equal(pytorch_internals.tree_leaves(Pair([1, 2])), [1, 2])


def flattens(function: Any) -> None:
    leaves, structure = function({"a": [1, 2], "b": 3})
    _equal(leaves, [1, 2, 3])
    _equal(pytorch_internals.tree_unflatten([4, 5, 6], structure), {"a": [4, 5], "b": 6})


def prints_structure(function: Any) -> None:
    assert isinstance(function(pytorch_internals.tree_flatten([1])[1]), str)


_register = torch.nn.modules.module


def infers_parameters() -> None:
    module = torch.nn.LazyLinear(3)
    (hook,) = module._forward_pre_hooks.values()
    assert hook == module._infer_parameters
    module._infer_parameters(module, (torch.empty(2, 5, device="meta"),), {})
    assert type(module) is torch.nn.Linear
    assert module.weight.shape == (3, 5)
    assert module.weight.device.type == "cpu"
    assert not module._forward_pre_hooks


def generates_code_lazily(cls: Any) -> None:
    graph = torch.fx.symbolic_trace(torch.nn.ReLU()).graph
    module = cls.from_graphmodule(torch.fx.GraphModule(torch.nn.Module(), graph))
    before = type(module).forward
    module.real_recompile()
    generated = type(module).forward
    assert generated is not before
    module.real_recompile()
    assert type(module).forward is generated


def replicates_modules() -> None:
    module = torch.nn.Linear(2, 2)
    replica: Any = module._replicate_for_data_parallel()
    assert type(replica) is torch.nn.Linear
    assert replica is not module


def composable_contract() -> None:
    """``contract`` reads the attributes of a module before it changes anything, in a function of the same file."""
    callers: list[tuple[Any, Any]] = []

    class Watching(torch.nn.Module):
        @property
        def __dict__(self) -> Any:
            frame = inspect.currentframe()
            assert frame is not None
            assert frame.f_back is not None
            callers.append((frame.f_back.f_globals["__name__"], frame.f_back.f_locals.get("func")))
            raise LookupError

    def apply(module: Any) -> Any:
        return module

    wrapper: Any = contract()(apply)
    _raised(LookupError, lambda: wrapper(Watching.__new__(Watching)))
    assert callers[0] == ("torch.distributed._composable.contract", apply)


def _in_fake_group(check: Callable[[Any], None]) -> Callable[[Any], None]:
    def checked(function: Any) -> None:
        store = torch.distributed.HashStore()
        torch.distributed.init_process_group("fake", store=store, rank=0, world_size=2)
        try:
            check(function)
        finally:
            torch.distributed.destroy_process_group()

    return checked


@_in_fake_group
def group_of_a_name(function: Any) -> None:
    group = torch.distributed.group.WORLD
    assert group is not None
    assert function(group.group_name) is group


def fake_store(cls: Any) -> None:
    torch.distributed.init_process_group("fake", store=cls(), rank=3, world_size=1024)
    try:
        _equal((torch.distributed.get_rank(), torch.distributed.get_world_size()), (3, 1024))
    finally:
        torch.distributed.destroy_process_group()


def replicated_module() -> None:
    module = sys.modules["torch.distributed._composable.replicate"]
    assert module.replicate is replicate
    assert isinstance(module.DDP, type)
    assert "DDP" in inspect.getsource(replicate)


def _sync_batch_norm(cls: Any) -> None:
    names = list(inspect.signature(cls.forward).parameters)
    assert names[1:] == [
        *("input", "weight", "bias", "running_mean", "running_var", "eps", "momentum", "process_group", "world_size")
    ]


CHECKS: dict[str, Callable[..., object]] = {
    "FakeTensor": fake_tensor_class,
    "FakeTensorMode": fake_mode,
    "ShapeEnv": shape_env,
    "size_settings": size_settings,
    "DimDynamic": dim_dynamic,
    "StrictMinMaxConstraint": min_max_constraint,
    "ShapeSource": shape_source,
    "GuardSource": guard_source,
    "PythonPrinter": python_printer,
    "EnablePythonDispatcher": enable_python_dispatcher,
    "ValueRanges": value_ranges,
    "DataDependentOutputException": data_dependent_output,
    "DynamicOutputShapeException": dynamic_output_shape,
    "UnsupportedFakeTensorException": unsupported_fake,
    "UnsupportedOperatorException": unsupported_operator,
    "fake_tensor": fake_tensor_log,
    "DisableTorchFunction": disables_modes,
    "DisableTorchFunctionSubclass": disables_subclasses,
    "EnableTorchFunction": enables_modes,
    "disabled_torch_function_impl": disabled_implementation,
    "get_function_stack_at": function_stack,
    "len_torch_function_stack": function_stack_length,
    "len_torch_dispatch_stack": dispatch_stack_length,
    "ensure_cuda_device_guard_set": lambda ensure: ensure(),
    "pop_torch_function_stack": pops_function_stack,
    "pop_torch_dispatch_stack": pops_dispatch_stack,
    "is_torch_function_mode_enabled": function_mode_enabled,
    "get_current_function_mode": current_function_mode,
    "DeviceContext": device_context,
    "no_dispatch": disables_dispatch,
    "TorchDispatchMode": dispatch_mode,
    "disable_current_modes": disables_dispatch,
    "make_wrapper_subclass": wrapper_subclass,
    "make_subclass": makes_subclass,
    "swap_tensor_impl": swaps_contents,
    "is_torch_function_enabled": function_enabled,
    "is_functional_tensor": functional_tensor,
    **dict.fromkeys(("map_impl", "scan_op", "while_loop_op", "cond_op"), higher_order_operator),
    "ScriptMethod": script_method,
    "RecursiveScriptModule": scripted_class,
    "is_functorch_wrapped_tensor": wrapped,
    "add_batch_dim": batches,
    "wrap_for_grad": wraps_for_grad,
    "peek_interpreter_stack": interpreter_stack,
    "get_interpreter_stack": interpreters,
    "get_unwrapped": unwrapped_tensor,
    "is_batchedtensor": batched_tensor,
    "maybe_get_level": tensor_level,
    "unwrap_if_dead": dead_wrapper,
    "TransformType": transform_types,
    "is_zerotensor": zero_tensor,
    "dispatch_keys": keys_of_dispatch,
    "BATCHED": batched_key,
    "kernels_by_key": kernels_in_python,
    "dispatch_cache": cache_of_dispatch,
    "kernel_for_key": kernel_for_a_key,
    "zero_tangent": zero_tangents,
    "current_interpreter": current_interpreters,
    "vmap_helper": maps_functions,
    "ForceDispatchKeyGuard": forces_dispatch_keys,
    "dispatch_tls_local_include_set": included_keys,
    "dispatch_tls_local_exclude_set": excluded_keys,
    "temporarily_clear_interpreter_stack": clears_interpreters,
    "slice_argnums": argument_slices,
    "assert_non_empty_tensor_output": tensor_outputs,
    "autocast_supported_devices": autocast_devices,
    "is_any_autocast_enabled": any_autocast,
    "get_cublas_allow_tf32": _follows(torch.backends.cuda.matmul, "allow_tf32"),
    "get_cudnn_allow_tf32": _true_inside(lambda: torch.backends.cudnn.flags(allow_tf32=False), inside=False),
    "get_cudnn_enabled": _true_inside(lambda: torch.backends.cudnn.flags(enabled=False), inside=False),
    "get_cudnn_benchmark": _true_inside(lambda: torch.backends.cudnn.flags(benchmark=True)),
    "get_cudnn_deterministic": _true_inside(lambda: torch.backends.cudnn.flags(deterministic=True)),
    "get_mkldnn_enabled": _true_inside(without_onednn, inside=False),
    "get_deterministic_fill_uninitialized_memory": _follows(torch.utils.deterministic, "fill_uninitialized_memory"),
    "get_deterministic_algorithms": deterministic,
    "get_deterministic_algorithms_warn_only": deterministic_warns,
    "get_float32_matmul_precision": matmul_precision,
    "get_flash_sdp_enabled": _switched(torch.backends.cuda.enable_flash_sdp),
    "get_mem_efficient_sdp_enabled": _switched(torch.backends.cuda.enable_mem_efficient_sdp),
    "get_math_sdp_enabled": _switched(torch.backends.cuda.enable_math_sdp),
    "get_cudnn_sdp_enabled": _switched(torch.backends.cuda.enable_cudnn_sdp),
    "profiler_enabled": _true_inside(torch.autograd.profiler.profile),
    "is_multithreading_enabled": _true_inside(lambda: torch.autograd.set_multithreading_enabled(False), inside=False),
    "is_view_replay_enabled": _true_inside(lambda: torch.autograd._force_original_view_tracking(True)),
    "is_fwd_grad_enabled": _true_inside(lambda: forward_ad._set_fwd_grad_enabled(False), inside=False),
    "saved_tensors_hooks_is_enabled": _true_inside(
        lambda: torch.autograd.graph.disable_saved_tensors_hooks("none"), inside=False
    ),
    "get_nnpack_enabled": _true_inside(lambda: torch.backends.nnpack.flags(False), inside=False),
    "get_overrideable_sdp_enabled": overrideable,
    "is_fastpath_enabled": fast_path,
    "set_grad_enabled": sets_grad,
    "set_cudnn_enabled": sets_cudnn,
    "global_forward_hooks": _global_hooks("_global_forward_hooks", _register.register_module_forward_hook),
    "global_forward_pre_hooks": _global_hooks("_global_forward_pre_hooks", _register.register_module_forward_pre_hook),
    "global_backward_hooks": _global_hooks("_global_backward_hooks", _register.register_module_full_backward_hook),
    "global_backward_pre_hooks": _global_hooks(
        "_global_backward_pre_hooks", _register.register_module_full_backward_pre_hook
    ),
    **{
        f"global_{kind}_registration_hooks": _global_hooks(
            f"_global_{kind}_registration_hooks", getattr(_register, f"register_module_{kind}_registration_hook")
        )
        for kind in ("buffer", "module", "parameter")
    },
    "current_level": dual_level,
    "GlobalStateGuard": global_state_guard,
    "TensorGuards": tensor_guards,
    "view_base": base,
    "view_base_getter": base_getter,
    "version_of": version,
    "version_property": lambda read: version(read.__get__),
    "identity_property": lambda read: tensor_identity(read.__get__),
    "c10d_functional": lambda: _equal(
        torch.ops._c10d_functional.all_reduce.default.__module__, "torch._ops._c10d_functional"
    ),
    "tensor_identity": tensor_identity,
    "storage_identity": storage_identity,
    "generator_identity": generator_identity,
    "is_view": is_view,
    "backward_hooks_of": backward_hooks,
    "accumulation_hooks_of": accumulation_hooks,
    "post_accumulate_grad_hooks": sets_accumulation_hooks,
    "neg_view": neg_view,
    "is_alias_of": alias,
    "CreationMeta": creation_meta,
    "get_creation_meta": reads_creation,
    "set_creation_meta": sets_creation,
    "compute_required_storage_length": storage_length,
    "get_current_graph_task_keep_graph": keeps_graph,
    "top_saved_tensors_default_hooks": default_hooks,
    "will_engine_execute_node": executes_node,
    "checkpoint_without_reentrant_generator": checkpoint_generator,
    "checkpoint_without_reentrant_generator_impl": checkpoint_of_tuples,
    "enable_checkpoint_early_stop": early_stop,
    "module_backward_hook": backward_hook_class,
    "apply_on_tensors": applies_on_tensors,
    "is_compiling_flag": compiling_flag,
    "dynamo_stance": compile_stance,
    "DynamoStance": stance_class,
    "stance_variable": lambda: _equal(torch._dynamo.eval_frame._stance.stance, "default"),
    "torchdynamo_disable": skipped_function,
    "torchdynamo_disable_msg": skipped_function,
    "DisableContext": disabled,
    "get_nonrecursive_disable_wrapper": disabled_alone,
    "cached_backends": backends,
    "set_code_exec_strategy": skipped_code,
    "FrameAction": lambda cls: _equal(cls.SKIP, cls.SKIP),
    "FrameExecStrategy": lambda cls: _equal(
        pytorch_internals.FrameAction.SKIP, cls(*[pytorch_internals.FrameAction.SKIP] * 2).cur_action
    ),
    "is_tracing": tracing,
    "is_fx_symbolic_tracing": symbolic_tracing,
    "nested_tensor_from_mask_left_aligned": nested_tensors,
    "nested_tensor_from_mask": nested_tensors,
    "parse_to": parses_to,
    "detect_is_causal_mask": causal_mask,
    "parameters": _module_dictionary("_parameters", lambda module: module.register_parameter("new", None)),
    "buffers": _module_dictionary("_buffers", lambda module: module.register_buffer("new", None)),
    "modules": _module_dictionary("_modules", lambda module: module.add_module("new", None)),
    "forward_hooks": _module_dictionary("_forward_hooks", lambda module: module.register_forward_hook(print)),
    "forward_pre_hooks": _module_dictionary(
        "_forward_pre_hooks", lambda module: module.register_forward_pre_hook(print)
    ),
    "backward_hooks": _module_dictionary("_backward_hooks", lambda module: module.register_full_backward_hook(print)),
    "backward_pre_hooks": _module_dictionary(
        "_backward_pre_hooks", lambda module: module.register_full_backward_pre_hook(print)
    ),
    "get_backward_hooks": own_hooks,
    "get_backward_pre_hooks": own_pre_hooks,
    "call_impl": _calls_module("_call_impl"),
    "wrapped_call_impl": _calls_module("_wrapped_call_impl"),
    "infer_parameters": infers_parameters,
    "LazyGraphModule": generates_code_lazily,
    "replicate_for_data_parallel": replicates_modules,
    "contract": composable_contract,
    "process_group_named": group_of_a_name,
    "FakeStore": fake_store,
    "replicate": replicated_module,
    "metadata": metadata,
    "OpOverload": lambda cls: _equal(type(_aten.relu.default), cls),
    "OpOverloadPacket": lambda cls: _equal(type(_aten.relu), cls),
    "schema_of": schema,
    "overload_name": lambda read: _equal(read(_aten.add.Tensor), "Tensor"),
    "qualified_op_name": lambda read: _equal(read(_aten.add), "aten::add"),
    "CustomOpDef": custom_operator,
    "overload_of": custom_overload,
    "custom_operators": custom_operators,
    "kernel_of": kernel_of_custom_operator,
    "kernels_by_device": kernels_by_device,
    "derivative_of": derivative_of_custom_operator,
    "batching_rule_of": batching_rule_of_custom_operator,
    "setup_context_of": setup_context_of_custom_operator,
    "python_kernel_keys": python_kernel_keys,
    "SyncBatchNormFunction": lambda cls: _sync_batch_norm(cls),
    "start_coalescing": lambda: vars(torch.distributed.ProcessGroup)["_start_coalescing"],
    "core_aten_decompositions": core_decompositions,
    "dispatch_has_kernel_for_dispatch_key": kernel_question,
    "dispatch_get_all_op_names": operator_list,
    "VariableFunctions": variable_functions,
    "neural_functions": lambda module: _equal(module.linear, torch.nn.functional.linear),
    "TensorBase": tensor_base,
    "foreach_copy_": writes_several,
    "torch_assert": asserts_in_modes,
    "foreach_norm": lambda function: _equal(function([torch.ones(4)], 0.0), (torch.tensor(4.0),)),
    "namespace_nn": _namespace("_nn", "gelu"),
    "namespace_linalg": _namespace("_linalg", "linalg_det"),
    "namespace_fft": _namespace("_fft", "fft_fft"),
    "namespace_special": _namespace("_special", "special_i0"),
    "namespace_sparse": _namespace("_sparse", "sparse_sampled_addmm"),
    "namespace_nested": _namespace("_nested", "nested_to_padded_tensor"),
    "trilinear": lambda: _equal(callable(torch._trilinear), True),
    "aten_unsafe_view": _operator("aten::_unsafe_view(Tensor self, SymInt[] size)"),
    "aten_to_copy": _operator("aten::_to_copy(Tensor self, *, ScalarType? dtype=None"),
    "aten_native_batch_norm_legit": _operator(
        "aten::_native_batch_norm_legit(Tensor input, Tensor? weight, Tensor? bias"
    ),
    "aten_native_batch_norm_legit_no_stats": _operator(
        "aten::_native_batch_norm_legit.no_stats(Tensor input, Tensor? weight, Tensor? bias"
    ),
    "aten_local_scalar_dense": _operator("aten::_local_scalar_dense(Tensor self) -> Scalar"),
    "aten_pad_packed_sequence": _operator("aten::_pad_packed_sequence(Tensor data, Tensor batch_sizes"),
    "pad_packed_sequence": lambda function: _equal(
        function(torch.ones(3, 1), torch.tensor([2, 1]), False, 0.0, 2)[1].tolist(), [2, 1]
    ),
    "aten_chunk_cat": _operator("aten::_chunk_cat(Tensor[] tensors, int dim, int num_chunks)"),
    "aten_log_softmax_backward_data": _operator(
        "aten::_log_softmax_backward_data(Tensor grad_output, Tensor output, int dim"
    ),
    "aten_native_multi_head_attention": native_attention,
    "aten_transformer_encoder_layer": _operator("aten::_transformer_encoder_layer_fwd(Tensor src"),
    "aten_fused_rms_norm": _packet("_fused_rms_norm"),
    "aten_log_softmax": _packet("_log_softmax"),
    "aten_safe_softmax": _packet("_safe_softmax"),
    "aten_softmax": _packet("_softmax"),
    "log_softmax_backward_data": _softmax_backward(torch.log_softmax),
    "softmax_backward_data": _softmax_backward(torch.softmax),
    "register_pytree_node": registers_node,
    "tree_flatten": flattens,
    "tree_leaves": lambda function: _equal(function({"a": [1, None], "b": 3}), [1, None, 3]),
    "tree_map": lambda function: _equal(function(lambda leaf: leaf + 1, {"a": [1, 2]}), {"a": [2, 3]}),
    "tree_unflatten": lambda function: _equal(function([2], pytorch_internals.tree_flatten([1])[1]), [2]),
    "treespec_pprint": prints_structure,
}

_FOLDERS = [Path(package.__file__).parent for package in (thunder_core, thunder)]

test_names = private_names_suite(pytorch_internals.NAMES, CHECKS, folders=_FOLDERS)
