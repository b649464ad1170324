"""The private names of PyTorch that this plugin uses, each with its purpose."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from thunder_core.private_names import Kind, Name, PrivateNames

if TYPE_CHECKING:  # classes for annotations
    from torch._ops import HigherOrderOperator as HigherOrderOperator

_GRAPHS = "graphs of torch.compile"
_REPORT = "the report on graphs of torch.compile"

ROWS: Final = (
    Name("torch._ops.HigherOrderOperator", _GRAPHS),
    Name("torch.amp.autocast_mode._enter_autocast", "autocast in graphs of torch.compile"),
    Name("torch._C._autograd._get_data_attr", "Tensor.data in graphs of torch.compile"),
    Name("torch.amp.autocast_mode._exit_autocast", "autocast in graphs of torch.compile"),
    Name("torch._dynamo.config", "torch._dynamo.config.suppress_errors", name="dynamo_config"),
    Name("torch._dynamo.eval_frame.set_code_exec_strategy", "backward that a graph break calls"),
    Name("torch._dynamo.types.FrameAction", "backward that a graph break calls"),
    Name("torch._dynamo.types.FrameExecStrategy", "backward that a graph break calls"),
    Name("torch._guards.CompileContext", _REPORT),
    Name("torch._dynamo.eval_frame.innermost_fn", _REPORT),
    Name("torch._dynamo.eval_frame.OptimizedModule", _REPORT),
    Name("torch._dynamo.eval_frame.OptimizedModule._orig_mod", _REPORT, kind=Kind.ATTRIBUTE),
    Name("torch._dynamo.utils.get_compilation_metrics", _REPORT),
)

NAMES: Final = PrivateNames(__name__, ROWS)


def __getattr__(name: str) -> Any:
    """The value of the row ``name``, which becomes an attribute of the module."""
    return NAMES.bind(name)
