"""What the front end does not cover: errors that name the function, the dtype or the class."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from thunder_core.errors import UnsupportedError
from thunder_core.tracing.frames import user_location

_ADVICE: Final = (
    "compile the functions that are called before and after it",
    "use a function of NumPy that is covered (plugins/numpy/README.md), or write it with PyTorch",
)


def not_covered(problem: str, *advice: str) -> UnsupportedError:
    """The error for something that cannot be compiled, at the user's line.

    Args:
        problem: what it is, with its name in NumPy.
        advice: what to do; general advice if there is none.
    """
    return UnsupportedError(problem, location=user_location(), advice=advice or _ADVICE)


def argument_not_covered(problem: str, *advice: str) -> UnsupportedError:
    """The error for an argument, which no line of the program decides."""
    return UnsupportedError(problem, advice=advice)


def words(text: str) -> frozenset[str]:
    """The words of a text, as the tables of names are written."""
    return frozenset(text.split())


@contextmanager
def numpy_errors(name: str) -> Iterator[None]:
    """Raise ``ValueError``, as NumPy does, for shapes that PyTorch refuses."""
    try:
        yield
    except RuntimeError as error:
        if isinstance(error, NotImplementedError) or not any(
            word in str(error) for word in ("size", "shape", "dimension")
        ):
            raise
        raise ValueError(f"numpy.{name}: {str(error).partition(chr(10))[0]}") from error
