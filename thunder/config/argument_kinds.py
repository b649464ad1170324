"""The front end of a call of a Python function: that of the plugin that records calls with such arguments."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import torch

from thunder_core.checks.plain import is_plain
from thunder_core.contract import FrontEnd, Recording, Request
from thunder_core.errors import InternalError, RunEagerly, ThunderError
from thunder_core.ir.location import at
from thunder_core.plugins.host import host
from thunder_core.plugins.specs import FrontEndSpec
from thunder_core.plugins.states import Offered

_CONTAINERS: Final = frozenset({tuple, list, dict})
"""By hash: comparing a class of the user's may run its code."""


@dataclass(frozen=True)
class ByArguments:
    """The default front end of Python programs, and those of plugins for calls with arguments of their classes.

    A call has the front end of a plugin if an argument is an instance of one of its `FrontEndSpec.arguments`, also in
    tuples, lists and dictionaries; and if no argument is a tensor and the program is neither a module nor its method.
    Where that front end does not record the call, or the call raises an exception, eager PyTorch runs it.

    Attributes:
        default: records all other calls.
    """

    default: FrontEnd

    def record(
        self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], request: Request
    ) -> Recording:
        """As `thunder_core.contract.FrontEnd`."""
        found = None
        if not isinstance(getattr(function, "__self__", function), torch.nn.Module):
            found = _front_end_for(list(_leaves((args, kwargs))))
        if found is None:
            return self.default.record(function, args, kwargs, request)
        front_end: FrontEnd = host().import_object(found)
        try:
            recording = front_end.record(function, args, kwargs, request)
        except InternalError:
            raise
        except ThunderError as error:
            raise RunEagerly(f"{error.problem}{at(error.location)}") from error
        except Exception as error:  # of the program, or of a library that does not take what it is recorded with
            raise _as_called(error) from error
        if recording.raised is not None:
            raise _as_called(recording.raised)
        return recording


def _as_called(error: BaseException) -> RunEagerly:
    """The reason why eager PyTorch runs a call that ends with an exception: the function raises the right one."""
    return RunEagerly(f"it raises {type(error).__name__} while it is recorded: {str(error).partition(chr(10))[0]}")


def _front_end_for(leaves: list[Any]) -> Offered[FrontEndSpec] | None:
    """The front end for a call whose arguments have these leaves; None for the default."""
    leaves = [leaf for leaf in leaves if not any(type(leaf) is kind for kind in weakref.ProxyTypes)]  # it may be dead
    if any(isinstance(leaf, torch.Tensor) for leaf in leaves) or all(map(is_plain, leaves)):
        return None
    host().load_all()
    for offered in host().offered(FrontEndSpec):
        for path in offered.spec.arguments:
            module, _, name = path.rpartition(".")
            kind = getattr(sys.modules.get(module), name, None)
            if kind is not None and any(isinstance(leaf, kind) for leaf in leaves):
                return offered
    return None


def _leaves(value: Any) -> Iterator[Any]:
    """The items of nested tuples, lists and dictionaries, each container once; runs no code of their classes."""
    left, seen = [value], set[int]()
    while left:
        each = left.pop()
        if type(each) not in _CONTAINERS:
            yield each
        elif id(each) not in seen:
            seen.add(id(each))
            left.extend(each.values() if type(each) is dict else each)
