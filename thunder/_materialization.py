"""Models on the meta device: programs before there are weights, and the weights."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from thunder._inspection import compiled_program
from thunder._libraries import library
from thunder_core.errors import OptionError

if TYPE_CHECKING:
    import torch


def precompile(jitted: Any, example: Any, *, device: Any) -> Any:
    """Compile the programs of calls without running them, also those of a model whose weights do not exist yet.

    Tensors of the meta device in the example and in the module represent tensors on ``device``, and so do those in
    modules that are arguments, or variables that a function names. The guards are those of a call with tensors there:
    a model that is then given its weights (`materialize`) is not compiled again for such a call. Nothing is allocated
    on ``device``. No other thread may use the modules meanwhile.

    Args:
        jitted: a result of `thunder.jit`, or a bound method of one.
        example: the arguments of a call: a tuple, a dict of keyword arguments, or the pair of both; or a list of these.
            Its tensors may be of the meta device, fake tensors (which represent tensors on their device), or real. The
            program of each call is compiled under the present modes (gradients, autocast, ``eval()``).
        device: the device of the call.

    Returns:
        ``jitted``.

    Raises:
        OptionError: ``jitted`` was not returned by `thunder.jit`, ``example`` is no arguments, or ``device`` is no
            device with data.
        DataDependentError: Python code of the program needs the value of a tensor that has none yet.
        UnsupportedError: eager PyTorch runs such a call, with the reason; or the program uses a tensor of the meta
            device that is no argument and does not belong to the module.
    """
    import torch

    from thunder.compiled.ahead_of_time import calls_of
    from thunder.compiled.ahead_of_time import precompile as compile_calls
    from thunder_core.checks.originals import original_of
    from thunder_core.errors import RunEagerly, UnsupportedError

    compiled = compiled_program(jitted)
    owner = getattr(jitted, "__self__", jitted)
    try:
        compile_calls(compiled, original_of(owner), calls_of(example), torch.device(device))
    except RunEagerly as needed:
        raise UnsupportedError(
            f"{compiled.name} cannot be compiled before the call, as eager PyTorch runs it: {needed}",
            advice=("change what the reason names, or compile a part of the model that does without it",),
        ) from needed
    return jitted


def materialize(
    module: Any,
    state: Mapping[str, Any] | str | os.PathLike[str] | None = None,
    *,
    device: Any = None,
    dtype: torch.dtype | None = None,
    initialize: Callable[[Any], Any] | None = None,
) -> Any:
    """Give a model on the meta device its weights, in place: from a state dict, from files, or newly initialized.

    Parameters and buffers remain the objects that they are, so tied weights stay tied, and ``requires_grad``, hooks
    and optimizers stay valid; gradients become None. Tensors that have data already are moved to ``device``. After an
    exception the model is what it was before.

    Args:
        module: an `nn.Module`, compiled or not.
        state: - a state dict, as for `load_state_dict`. For a compiled module its transforms convert it.
            - a path: of a safetensors file, of the index of several (``model.safetensors.index.json``), or of a folder
              with either. Tensors are read one at a time, into the memory of the parameters.
            - None: the model initializes itself. The method ``reset_parameters`` of each submodule is called, then
              ``_init_weights(submodule)`` and ``init_weights()`` of the model, where it has them.
        device: of the tensors; None for `torch.get_default_device`.
        dtype: of floating-point parameters and buffers; None to leave theirs.
        initialize: called with the module in place of its own methods. It writes all tensors that ``state`` does not
            have.

    Returns:
        ``module``.

    Tensors that no state dict has (buffers with ``persistent=False``, tensors in attributes) are computed by these
    methods of the submodule that they belong to, without consuming random numbers if there is a state.

    Raises:
        OptionError: an argument is not accepted, a file is not there or is not a safetensors file, or tied weights have
            different values in it.
        RuntimeError: names or shapes do not fit; with all missing, unexpected and mis-shaped ones, as
            `load_state_dict` raises it.
        UnsupportedError: tensors remain that nothing has written, with their names; or are not plain strided tensors.
        PluginError: the package ``thunder-saving`` is not installed.
    """
    import torch

    from thunder_core.checks.originals import uncompiled

    if not isinstance(module, torch.nn.Module):
        raise OptionError(
            f"thunder.materialize takes a module, and not an object of type {type(module).__name__}",
            advice=("pass an nn.Module, or the result of thunder.jit for one",),
        )
    target = torch.device(torch.get_default_device() if device is None else device)
    if target.type == "meta":
        raise OptionError("the meta device has no data to materialize a model with", advice=('pass device="cpu"',))
    if dtype is not None and not (dtype.is_floating_point or dtype.is_complex):
        raise OptionError(f"{dtype} is no dtype of floating-point parameters", advice=("dtype=torch.bfloat16",))
    materialization = library("saving", "materialization", "thunder.materialize")
    materialization.materialize(uncompiled(module), module, state, target, dtype, initialize)
    return module
