"""The options of the executor."""

from __future__ import annotations

from pydantic import Field

from thunder_core.plugins import ExecutorOptions


class NvfuserOptions(ExecutorOptions):
    """Options of ``nvfuser``."""

    matmul: bool = False
    """Whether regions may contain matmuls. Otherwise PyTorch's libraries run them."""
    linear: bool = False
    """Whether regions may contain `torch.nn.functional.linear`. Otherwise PyTorch's libraries run it."""
    shape_only: bool = False
    """Whether regions that only move elements are compiled. Otherwise they go to the next executors."""
    smallest: int = Field(default=2, ge=1)
    """Regions with fewer operations go to the next executors."""
    compile_early: bool = True
    """Compile each region together with the program, by running it once on random inputs. Regions that nvFuser rejects
    then go to the next executors. Otherwise the first call compiles, and a rejection is an error.
    """
    save_definitions: str | None = None
    """A folder. A script for each compiled region is written to it, with nvFuser's definition, random inputs of the
    same shapes, strides and dtypes, and a time measurement.
    """
    fuel: int | None = Field(default=None, ge=0)
    """Largest number of distinct regions that this process compiles; others are declined. For locating a region with a
    wrong result by bisection. None: no limit.
    """
    enable: tuple[str, ...] = ()
    """nvFuser's switches to enable, as in its variable `NVFUSER_ENABLE`."""
    disable: tuple[str, ...] = ()
    """nvFuser's switches to disable, as in its variable `NVFUSER_DISABLE`."""
