"""The private names of PyTorch that this plugin uses: what for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from thunder_core.private_names import Kind, PrivateNames, Row

if TYPE_CHECKING:  # classes that annotations name
    from torch._ops import HigherOrderOperator as HigherOrderOperator

_GRAPHS = "graphs of torch.compile"
_REPORT = "the report on graphs of torch.compile"

ROWS: Final = (
    Row("torch._ops.HigherOrderOperator", _GRAPHS),
    Row("torch.amp.autocast_mode._enter_autocast", "autocast in graphs of torch.compile"),
    Row("torch._C._autograd._get_data_attr", "Tensor.data in graphs of torch.compile"),
    Row("torch.amp.autocast_mode._exit_autocast", "autocast in graphs of torch.compile"),
    Row("torch._dynamo.config", "torch._dynamo.config.suppress_errors", name="dynamo_config"),
    Row("torch._dynamo.eval_frame.set_code_exec_strategy", "backward that a graph break calls"),
    Row("torch._dynamo.types.FrameAction", "backward that a graph break calls"),
    Row("torch._dynamo.types.FrameExecStrategy", "backward that a graph break calls"),
    Row("torch._guards.CompileContext", _REPORT),
    Row("torch._dynamo.eval_frame.innermost_fn", _REPORT),
    Row("torch._dynamo.eval_frame.OptimizedModule", _REPORT),
    Row("torch._dynamo.eval_frame.OptimizedModule._orig_mod", _REPORT, kind=Kind.ATTRIBUTE),
    Row("torch._dynamo.utils.get_compilation_metrics", _REPORT),
)

NAMES: Final = PrivateNames(__name__, ROWS)


def __getattr__(name: str) -> Any:
    """What the row ``name`` gives; the module has it as an attribute from then on."""
    return NAMES.bind(name)
