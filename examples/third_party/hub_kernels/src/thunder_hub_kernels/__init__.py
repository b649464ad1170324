"""A plugin of Thunder with kernels of the Hugging Face Hub. Importing it imports neither PyTorch nor `kernels`."""

from pydantic import BaseModel, ConfigDict, Field

from thunder_core.plugins import ExecutorOptions, ExecutorSpec, hookimpl


class Kernel(BaseModel):
    """A function of a kernel, and the operation that it runs."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    operation: str
    """The operation by its dotted name: ``torch.nn.functional.silu``, ``thunder_plugin_composites.swiglu``."""
    repository: str
    """The kernel on the Hub: ``kernels-community/activation``."""
    function: str
    """The name of the function in the kernel. It gets the arguments of the operation."""
    out: bool = False
    """Whether the function takes a tensor like the first argument before the others, and writes its result there."""
    device: str = "cuda"
    """The type of device on which it runs."""
    capability: tuple[int, int] = (8, 0)
    """The least compute capability of a CUDA device."""
    dtypes: tuple[str, ...] = ("float32", "float16", "bfloat16")
    """The dtypes of its tensors."""


class Options(ExecutorOptions):
    """The options of the executor."""

    lock: str = "kernels.lock"
    """The lock file, which ``kernels lock`` writes: the commit of each kernel."""
    download: bool = False
    """Whether kernels that are not in the cache of the Hub are downloaded; otherwise they are declined."""
    kernels: tuple[Kernel, ...] = Field(default=())
    """The kernels."""


@hookimpl
def thunder_executors() -> list[ExecutorSpec]:
    """The executor."""
    summary = "kernels of the Hugging Face Hub"
    return [ExecutorSpec("hub_kernels", "thunder_hub_kernels.executor:executor", Options, summary)]
