"""What the hooks of a plugin return: specifications, which import nothing.

``load`` is where the thing itself is: ``"package.module:attribute"``. It is imported when a program is compiled that
uses it, so the module may import the vendor's library.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from thunder_core.plugins.options import ExecutorOptions, TransformOptions
from thunder_core.private_names import PrivateNames


@dataclass(frozen=True, slots=True)
class ExecutorSpec:
    """An executor.

    Attributes:
        name: in configurations. An executor that is called like its plugin needs no prefix there.
        load: of a callable that takes the options and returns a `thunder_core.executors.Executor`.
        options: the model of its options.
        summary: one line, for lists.
    """

    name: str
    load: str
    options: type[ExecutorOptions] = ExecutorOptions
    summary: str = ""


@dataclass(frozen=True, slots=True)
class TransformSpec:
    """A transform.

    Attributes:
        name: in configurations; the ``name`` of the transform.
        load: of a callable that takes the options and returns a `thunder_core.passes.transform.Transform`.
        options: the model of its options.
        summary: one line, for lists.
        default: whether it runs unless a configuration disables it. For transforms of the core.
    """

    name: str
    load: str
    options: type[TransformOptions] = TransformOptions
    summary: str = ""
    default: bool = False


@dataclass(frozen=True, slots=True)
class SymbolsSpec:
    """Operations that the plugin defines.

    Attributes:
        load: of an iterable of `thunder_core.symbols.row.Row`: what there is to know about functions that the plugin
            defines, with `torch.library` or with `thunder_core.symbols.recorded`. They are added when the plugin is
            used for the first time, and must not be about functions that have a row already. A row about an operator of
            `torch.library` names its overload as well: ``row("torch.ops.mine.f(x)", "torch.ops.mine.f.default")``.
        rules: of a mapping from dotted names of these operations to their derivatives, functions as
            `thunder_core.autodiff.rules` describes them. Empty: autograd differentiates what they call.
    """

    load: str
    rules: str = ""

    @property
    def name(self) -> str:
        """For lists: where the table is. It has no other name."""
        return self.load


@dataclass(frozen=True, slots=True)
class InterceptionsSpec:
    """Functions that programs call and that no torch function shows: what they do while a program is recorded.

    Attributes:
        load: of an iterable of `thunder_core.acquire.interception.Interception`. They are added when the plugin is used
            for the first time, and replace their functions only while a program is recorded. No two may be of one
            function, the core's among them.
    """

    load: str

    @property
    def name(self) -> str:
        """For lists: where the table is. It has no other name."""
        return self.load


@dataclass(frozen=True, slots=True)
class FrontEndSpec:
    """Another way to record programs.

    Attributes:
        name: for the option ``front_end`` of configurations.
        load: of a callable ``(function, args, kwargs) -> thunder_core.acquire.acquire.Acquired``.
        summary: one line, for lists.
    """

    name: str
    load: str
    summary: str = ""


@dataclass(frozen=True, slots=True)
class Preset:
    """A configuration that is shipped in a package.

    Attributes:
        name: for ``config=`` and ``extends:``.
        package, file: where it is: ``importlib.resources.files(package) / file``, in YAML.
        summary: one line, for lists.
        device: a type of device, as ``cuda``, if the executors of this configuration run programs there for which no
            executors were named. Empty: it is used where it is named. Each type has one preset; the core has those of
            ``cpu`` and ``cuda``.
    """

    name: str
    package: str
    file: str
    summary: str = ""
    device: str = ""


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that ``thunder doctor`` checks.

    Attributes:
        name: what is checked.
        load: of a callable without arguments that returns a `CheckResult`, where an exception counts as a failure; or
            of a table of private names, `thunder_core.private_names.PrivateNames`, where one that is missing does.
    """

    name: str
    load: str


@dataclass(frozen=True, slots=True)
class CheckResult:
    """The result of a check.

    Attributes:
        ok: False for what must be repaired.
        text: the result, one line.
        advice: what to do about it.
    """

    ok: bool
    text: str
    advice: str = ""


TABLES: Final = (SymbolsSpec, InterceptionsSpec)
"""Specifications without a name: what they lead to is added when the plugin is used for the first time."""


def private_names_result(names: PrivateNames, *, except_below: str = "") -> CheckResult:
    """What `thunder doctor` shows of a table of private names: those that are missing, and what is refused for each.

    Args:
        names: the table.
        except_below: a module whose names are left out, since it takes long to import.
    """
    missing = names.missing(except_below=except_below)
    if not missing:
        return CheckResult(True, f"{len(names.rows)} are there")
    refused = "; ".join(f"{one.row.path} ({one.reason}), so this is refused: {one.row.feature}" for one in missing)
    return CheckResult(False, refused, "install a version that Thunder is tested with, or do without what is refused")
