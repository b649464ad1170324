"""The options of the executor."""

from __future__ import annotations

from pydantic import Field

from thunder_core.plugins import ExecutorOptions


class NvfuserOptions(ExecutorOptions):
    """Options of ``nvfuser``."""

    matmul: bool = False
    """Whether regions hold products of matrices. Otherwise PyTorch's libraries run them."""
    linear: bool = False
    """Whether regions hold `torch.nn.functional.linear`. Otherwise PyTorch's libraries run it."""
    shape_only: bool = False
    """Whether regions that only move elements are compiled. Otherwise they go to the executors after this one."""
    smallest: int = Field(default=2, ge=1)
    """Regions of fewer lines are left to the executors after this one."""
    compile_early: bool = True
    """Compile each region when the program is compiled, by running it once on made-up numbers. What nvFuser refuses
    then goes to the executors after this one. Otherwise the first call compiles, and a refusal there is an error."""
    save_definitions: str | None = None
    """A folder. Each region that is compiled is written there as a script that runs by itself: nvFuser's definition,
    random inputs of the same shapes, strides and dtypes, and the time that it takes."""
    fuel: int | None = Field(default=None, ge=0)
    """At most so many different regions are compiled in this process, and the others declined: to find by bisection
    the region that makes a result wrong. None: all of them."""
    enable: tuple[str, ...] = ()
    """Names of nvFuser's own switches that are turned on, as in its variable `NVFUSER_ENABLE`."""
    disable: tuple[str, ...] = ()
    """Names of nvFuser's own switches that are turned off, as in its variable `NVFUSER_DISABLE`."""
