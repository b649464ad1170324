"""Specifications: what the hooks of a plugin return. They name objects by import path, so they import nothing.

``load`` is such a path, ``"package.module:attribute"``. The object is imported when a compiled program uses it, so its
module may import the vendor's library.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final, Protocol

from thunder_core.plugins.options import ExecutorOptions, Options, TransformOptions
from thunder_core.private_names import PrivateNames


class Specification(Protocol):
    """The common attributes of all specifications: ``word`` is what messages call this kind."""

    word: ClassVar[str]

    @property
    def name(self) -> str: ...


@dataclass(frozen=True, slots=True)
class ExecutorSpec:
    """An executor.

    Attributes:
        name: its name in configurations. An executor with the name of its plugin needs no prefix there.
        load: a callable that takes the options and returns a `thunder_core.executors.Executor`.
        options: the model of its options.
        summary: one line, for lists.
    """

    word: ClassVar[str] = "executor"

    name: str
    load: str
    options: type[ExecutorOptions] = ExecutorOptions
    summary: str = ""


@dataclass(frozen=True, slots=True)
class TransformSpec:
    """A transform.

    Attributes:
        name: its name in configurations; the ``name`` of the transform.
        load: a callable that takes the options and returns a `thunder_core.passes.transform.Transform`.
        options: the model of its options.
        summary: one line, for lists.
    """

    word: ClassVar[str] = "transform"

    name: str
    load: str
    options: type[TransformOptions] = TransformOptions
    summary: str = ""


@dataclass(frozen=True, slots=True)
class SymbolsSpec:
    """Operations that the plugin defines.

    Attributes:
        load: an iterable of `thunder_core.symbols.row.Row`, one for each function that the plugin defines, with
            `torch.library` or with `thunder_core.symbols.recorded`. The rows are added when the plugin is first used.
            A function with a row already must not have another. A row for an operator of `torch.library` also names
            its overload: ``row("torch.ops.mine.f(x)", "torch.ops.mine.f.default")``.
        rules: a mapping from dotted names of these operations to derivative rules, functions as
            `thunder_core.autodiff.derivatives.rules` describes them. Empty: autograd differentiates the functions.
    """

    word: ClassVar[str] = "table of symbols"

    load: str
    rules: str = ""

    @property
    def name(self) -> str:
        """The path of the table, for lists: it has no other name."""
        return self.load


@dataclass(frozen=True, slots=True)
class InterceptionsSpec:
    """Functions that a torch-function mode does not see, and their replacements while a program is recorded.

    Attributes:
        load: an iterable of `thunder_frontend.record.interception.Interception`, with at most one
            `thunder_frontend.record.communication.Communication`. They are added when the plugin is first used, and
            replace their functions only during recording. A function has at most one interception, apart from those
            with which the core refuses a function.
        options: the model of the options of an entry in the list ``interceptions`` of configurations, where the name
            of the plugin selects its table. The table of a plugin that offers more is also added when a
            configuration names something else of the plugin.
        unobserved: the dotted name of a package that is treated as part of Thunder: its frames are not observed, so it
            has to add a guard for each property that a program depends on (`Observer.add_guard`). Empty: the reads of
            handlers are guarded as `Interception.observed` says.
        summary: one line, for lists.
    """

    word: ClassVar[str] = "table of interceptions"

    load: str
    options: type[Options] = Options
    unobserved: str = ""
    summary: str = ""

    @property
    def name(self) -> str:
        """The path of the table, for lists: it has no other name."""
        return self.load


@dataclass(frozen=True, slots=True)
class TensorClassesSpec:
    """Support for wrapper subclasses: tensors of classes with a ``__torch_dispatch__``.

    Attributes:
        name: its name in the list ``tensor_classes`` of configurations.
        load: a callable that takes the options and returns a `thunder_frontend.record.tensor_classes.TensorClasses`.
            Its package is treated as part of Thunder: its frames are not observed, so it has to add a guard for each
            property that a program depends on (`Observer.add_guard`).
        options: the model of its options.
        summary: one line, for lists.
    """

    word: ClassVar[str] = "support of tensor classes"

    name: str
    load: str
    options: type[Options] = Options
    summary: str = ""


@dataclass(frozen=True, slots=True)
class FrontEndSpec:
    """A front end: records a program as a trace.

    Attributes:
        name: its name in the option ``front_end`` of configurations.
        load: a `thunder_core.contract.FrontEnd`.
        summary: one line, for lists.
        tables: what other plugins may offer to this front end: pairs of a class of specifications and the path of a
            function that takes a `thunder_core.plugins.states.PluginRecord`. It is called when a plugin with such
            specifications is first used.
        programs: the kinds of programs that `thunder.jit` records with this front end, whatever the configuration:
            pairs of the dotted path of a class, which is not imported, and the path of a function that takes an
            instance and returns the function or module to compile. Functions and modules are no such kinds: the
            configuration chooses their front end.
        arguments: the classes of arguments whose presence selects this front end for a call of a function, where the
            configuration names none and no argument is a tensor: dotted paths of classes, which are not imported.
    """

    word: ClassVar[str] = "front end"

    name: str
    load: str
    summary: str = ""
    tables: tuple[tuple[type[Specification], str], ...] = ()
    programs: tuple[tuple[str, str], ...] = ()
    arguments: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Preset:
    """A configuration in a file of a package.

    Attributes:
        name: its name for ``config=`` and ``extends:``.
        package, file: the location of the YAML file: ``importlib.resources.files(package) / file``.
        summary: one line, for lists.
        device: a type of device, such as ``cuda``, for which its executors are the default: they run programs on such
            devices whose configuration names no executors. Empty for none. Each type has at most one such preset; the
            core has those of ``cpu`` and ``cuda``.
    """

    word: ClassVar[str] = "preset"

    name: str
    package: str
    file: str
    summary: str = ""
    device: str = ""


@dataclass(frozen=True, slots=True)
class CommandSpec:
    """A command of ``thunder``.

    Attributes:
        name: the name of the command: ``thunder NAME``. Commands of the core come first.
        load: a function whose parameters Typer reads. It is imported for ``thunder --help`` too, so its module must not
            import PyTorch.
        summary: one line, for lists.
    """

    word: ClassVar[str] = "command"

    name: str
    load: str
    summary: str = ""


@dataclass(frozen=True, slots=True)
class CheckSpec:
    """A check of ``thunder doctor``.

    Attributes:
        name: its subject.
        load: a callable without arguments that returns a `CheckResult`, and fails if it raises; or a table of private
            names, `thunder_core.private_names.PrivateNames`, which fails if one is missing.
    """

    word: ClassVar[str] = "check"

    name: str
    load: str


@dataclass(frozen=True, slots=True)
class CheckResult:
    """The result of a check.

    Attributes:
        ok: whether it passed.
        text: the result, one line.
        advice: what to do if it failed.
    """

    ok: bool
    text: str
    advice: str = ""


KINDS: Final[dict[str, type[Specification]]] = {
    "thunder_executors": ExecutorSpec,
    "thunder_transforms": TransformSpec,
    "thunder_symbols": SymbolsSpec,
    "thunder_interceptions": InterceptionsSpec,
    "thunder_tensor_classes": TensorClassesSpec,
    "thunder_front_ends": FrontEndSpec,
    "thunder_presets": Preset,
    "thunder_commands": CommandSpec,
    "thunder_doctor": CheckSpec,
}
"""The class of the specifications that each hook returns."""
TABLES: Final = (SymbolsSpec, InterceptionsSpec)
"""Specifications without a name: their tables are added when the plugin is first used."""
Loadable = (
    ExecutorSpec
    | TransformSpec
    | TensorClassesSpec
    | FrontEndSpec
    | SymbolsSpec
    | InterceptionsSpec
    | CommandSpec
    | CheckSpec
)
"""Specifications with a ``load``."""


def plural(kind: type[Specification]) -> str:
    """The plural of a kind of specification: ``executors``, ``tables of symbols``."""
    noun, of, rest = kind.word.partition(" of ")
    return f"{noun}s{of}{rest}"


def private_names_result(names: PrivateNames, *, except_below: str = "") -> CheckResult:
    """The result of checking a table of private names: the missing ones, and what is refused without each.

    Args:
        names: the table.
        except_below: a module whose names are not checked, since it takes long to import.
    """
    missing = names.missing(except_below=except_below)
    if not missing:
        return CheckResult(True, f"{'all ' if len(names.rows) > 1 else ''}{len(names.rows)} available")
    refused = "; ".join(f"{one.row.path} ({one.reason}), refused: {one.row.feature}" for one in missing)
    return CheckResult(
        False, refused, "install a version that Thunder is tested with, or do not use the refused features"
    )
