"""The ways to know a value while a program is recorded, in the order in which they are tried.

To add one: a class with a method ``resolve`` (`thunder_core.acquire.recorder.Resolver`) in a file of its own, and its
place here. What needs another recording of the program is no resolver: see `thunder_core.acquire.attempt`.
"""

from __future__ import annotations

from typing import Final

from thunder_core.acquire.concrete import Constant
from thunder_core.acquire.deferred import Deferred
from thunder_core.acquire.probe import Sample
from thunder_core.acquire.ranges import RandomRange
from thunder_core.acquire.recorder import Resolver
from thunder_core.acquire.size_tensors import SizeOfTensor
from thunder_core.acquire.speculation import Speculation
from thunder_core.acquire.without_cudnn import WithoutCudnn

RESOLVERS: Final[tuple[Resolver, ...]] = (
    Constant(),
    RandomRange(),
    WithoutCudnn(),
    SizeOfTensor(),
    Deferred(),
    Speculation(),
    Sample(),
)
