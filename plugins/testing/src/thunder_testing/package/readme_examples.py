"""The Python blocks of a README, executed in order as one program."""

from __future__ import annotations

import contextlib
import re
import sys
import tempfile
import traceback
import types
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import CodeType
from typing import Final

from thunder_core import PACKAGES
from thunder_core.plugins.importing import FAILURES
from thunder_testing.conformance.failure import Breach, NotApplicable
from thunder_testing.package.project import Plugin, Project

_BLOCK: Final = re.compile(r"^```python\n(?P<code>.*?)^```", re.MULTILINE | re.DOTALL)


def check_examples(project: Project, plugins: Sequence[Plugin]) -> None:
    """Execute the blocks in an empty folder, up to one that needs a GPU or a library that is not available."""
    programs = _programs(project.readme) if project.readme is not None else []
    if not programs:
        raise NotApplicable("there is no README in Markdown with a block of Python")
    module = types.ModuleType("readme")
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder), _registered(module):
        for program in programs:
            try:
                exec(program, module.__dict__)
            except FAILURES as error:
                line = _line(error, program)
                absent = _what_is_absent(error, project, plugins)
                if absent:
                    raise NotApplicable(f"README.md:{line}: {absent}") from error
                raise Breach("examples", f"README.md:{line}: {type(error).__name__}: {error}") from error


def _programs(readme: Path) -> list[CodeType]:
    """The compiled blocks, with the file name and line numbers of the README. Raises Breach for invalid Python."""
    text, programs = readme.read_text(encoding="utf-8"), []
    for match in _BLOCK.finditer(text):
        above = "\n" * text.count("\n", 0, match.start("code"))
        try:
            programs.append(compile(above + match["code"], str(readme), "exec", dont_inherit=True))
        except SyntaxError as error:
            raise Breach("examples", f"README.md:{error.lineno}: {error.msg}") from error
    return programs


@contextlib.contextmanager
def _registered(module: types.ModuleType) -> Iterator[None]:
    """A context in which classes of the examples can be looked up in their module."""
    before = sys.modules.get(module.__name__)
    sys.modules[module.__name__] = module
    try:
        yield
    finally:
        del sys.modules[module.__name__]
        if before is not None:
            sys.modules[module.__name__] = before


def _what_is_absent(error: BaseException, project: Project, plugins: Sequence[Plugin]) -> str:
    """The missing device or library, if the error or one of its causes is about that; else empty.

    PyTorch raises when it initializes a missing device, and Thunder repeats the reason why a plugin cannot be used. If
    a plugin cannot be used, an import error is attributed to its library, unless the module is the plugin's.
    """
    reasons = [why for why in (plugin.why_not() for plugin in plugins) if why]
    for one in _with_causes(error):
        if _is_about_a_device(one):
            return f"there is no such device: {one}"
        for why in reasons:
            if why in str(one):
                return why
        if reasons and isinstance(one, ImportError):
            package = (one.name or "").partition(".")[0]
            if package not in (*PACKAGES, *project.packages):
                return f"{reasons[0]} ({one})"
    return ""


def _with_causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _is_about_a_device(error: BaseException) -> bool:
    """Whether it was raised by PyTorch's initialization of a device, such as `torch.cuda._lazy_init`."""
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    where = frames[-1] if frames else None
    module = "" if where is None else str(where.f_globals.get("__name__", ""))
    return where is not None and where.f_code.co_name == "_lazy_init" and module.startswith("torch.")


def _line(error: BaseException, program: CodeType) -> int:
    """The last line of the README in the traceback."""
    walked = traceback.walk_tb(error.__traceback__)
    return [line for frame, line in walked if frame.f_code.co_filename == program.co_filename][-1]
