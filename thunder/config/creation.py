"""The creation of the executors, transforms, front end and other parts that a configuration names."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar
from weakref import WeakKeyDictionary

from thunder.config.argument_kinds import ByArguments
from thunder.config.entry import EXTENDED, LISTS, PartSpec
from thunder.config.problems import Problem, Trail
from thunder.config.resolve import Part, ResolvedConfig
from thunder_core.contract import FrontEnd
from thunder_core.errors import PluginError, ThunderError, is_strict
from thunder_core.executors.configured import ConfiguredExecutor
from thunder_core.executors.executor import Executor
from thunder_core.passes.transform import Transform, ordered
from thunder_core.plugins.first_party import subject_of
from thunder_core.plugins.host import Host, host
from thunder_core.plugins.importing import FAILURES, failure
from thunder_core.plugins.options import ExecutorOptions
from thunder_core.plugins.states import Offered
from thunder_frontend.record.classes_by_plugin import ClassesByPlugin
from thunder_frontend.record.subclasses import SUBJECT
from thunder_frontend.record.tensor_classes import RefusedClasses, TensorClasses

Result = TypeVar("Result")


@dataclass(frozen=True)
class Parts:
    """The objects of a configuration.

    Attributes:
        executors, transforms, wrapper_classes, left_out, advice: as in `thunder_core.settings.Settings`.
        front_end: the front end; None if it cannot be used, which is a problem.
    """

    executors: tuple[Executor, ...]
    transforms: tuple[Transform, ...]
    wrapper_classes: TensorClasses
    front_end: FrontEnd | None
    left_out: tuple[tuple[str, str], ...]
    advice: tuple[tuple[str, str], ...]


def create_parts(resolved: ResolvedConfig, problems: list[Problem] | None = None) -> Parts:
    """Import and create the parts of a configuration that has no problems.

    Args:
        problems: receives the errors, with their places in the configuration, instead of raising the first one.

    Raises:
        PluginError: a part that is not optional cannot be imported or created.
        TransformError: transforms contradict each other.
    """
    creation = _Creation(resolved, problems)
    executors = creation.executors()
    transforms = creation.transforms()
    wrapper_classes = creation.tensor_classes()
    front_end = creation.front_end()
    creation.use_interceptions()
    return Parts(executors, transforms, wrapper_classes, front_end, tuple(creation.left_out), tuple(creation.advice))


@dataclass
class _Creation:
    """The creation of the parts of a configuration.

    Attributes:
        resolved: the configuration.
        problems: as for `create_parts`.
        left_out, advice: as in `Parts`, so far.
    """

    resolved: ResolvedConfig
    problems: list[Problem] | None
    left_out: list[tuple[str, str]] = field(default_factory=list)
    advice: list[tuple[str, str]] = field(default_factory=list)

    def executors(self) -> tuple[Executor, ...]:
        """The executors, configured by the options ``include``, ``exclude`` and ``on_decline``; not those in place of
        ``...``, which the device decides.
        """
        parts = [part for part in self.resolved.parts["executors"] if part.entry != EXTENDED]
        created = [(part, self.create(part)) for part in parts]
        return tuple([_configured(part, executor) for part, executor in created if executor is not None])

    def transforms(self) -> tuple[Transform, ...]:
        """The enabled transforms. For a disabled transform, the tables of its plugin are added nevertheless."""
        parts = self.resolved.parts["transforms"]
        for part in parts:
            if not part.enabled and part.offered is not None:
                self.use(part)
        enabled = [(part, self.create(part)) for part in parts if part.enabled]
        present = [(part, transform) for part, transform in enabled if transform is not None]
        names = [transform.name for _, transform in present]
        used = [transform for part, transform in present if not self.gives_way(part, transform, names)]
        return self.attempt(("transforms",), lambda: ordered(used)) or ()

    def gives_way(self, part: Part, transform: Transform, names: Sequence[str]) -> bool:
        """Whether an optional transform conflicts with one of those named: it is then left out."""
        conflict = next((name for name in transform.conflicts if name in names), None)
        if conflict is None or part.offered is None or not part.options.optional:
            return False
        self.left_out.append((part.entry.name, f"it conflicts with {conflict!r}"))
        return True

    def tensor_classes(self) -> TensorClasses:
        """The usable supports of tensor classes, of which the class of a tensor decides; without any, a refusal."""
        supports: list[tuple[str, TensorClasses]] = []
        for part in self.resolved.parts["tensor_classes"]:
            created, reasons = self.with_reasons(part, self.create)
            self.advice += [(SUBJECT, reason) for reason in reasons]
            if created is not None:
                origin = "a Python object" if part.offered is None else f"the {part.offered.plugin.title}"
                supports.append((f"{created.name!r} of {origin}", created))
        return ClassesByPlugin(tuple(supports)) if supports else RefusedClasses()

    def front_end(self) -> FrontEnd | None:
        """The front end; None if it cannot be imported and problems are collected."""
        offered = self.resolved.front_end
        assert offered is not None, "a missing front end is a problem"
        front_end = self.attempt(("front_end",), lambda: host().import_object(offered))
        return ByArguments(front_end) if front_end is not None and offered.spec.name == "run" else front_end

    def use_interceptions(self) -> None:
        """Add the tables of interceptions."""
        for part in self.resolved.parts["interceptions"]:
            _, reasons = self.with_reasons(part, self.use)
            self.advice += [(subject_of(part.entry.name), reason) for reason in reasons]

    def with_reasons(self, part: Part, function: Callable[[Part], Result]) -> tuple[Result, list[str]]:
        """``function(part)``; and if this leaves the part out, the reason and the first advice, otherwise nothing."""
        before = len(self.left_out)
        result = function(part)
        return result, [*[reason for _, reason in self.left_out[before:]], *part.advice[:1]]

    def create(self, part: Part) -> Any:
        """The object of a part; None if it is left out."""
        if part.entry.given is not None:
            return part.entry.given
        return self.unless_left_out(part, lambda offered: _object(offered, part))

    def use(self, part: Part) -> None:
        """Add the tables of the plugin of a part, unless the part is left out."""
        if part.entry.given is None:
            self.unless_left_out(part, lambda offered: host().use(offered))

    def unless_left_out(self, part: Part, function: Callable[[Offered[PartSpec]], Result]) -> Result | None:
        """``function(part.offered)``; None for an optional part that is missing or fails, which is added to `left_out`.

        A part that is not optional is a problem if it fails.
        """
        offered = part.offered
        if offered is None:
            self.left_out.append((part.entry.name, part.left_out))
            return None
        try:
            return function(offered)
        except PluginError as error:
            if _may_be_left_out(part, error):
                self.left_out.append((part.entry.name, error.problem))
            else:
                self.add_problem(part.trail, error)
            return None

    def attempt(self, trail: Trail, function: Callable[[], Result]) -> Result | None:
        """``function()``; None if it raises a `ThunderError` and problems are collected, which receive the error."""
        try:
            return function()
        except ThunderError as error:
            self.add_problem(trail, error)
            return None

    def add_problem(self, trail: Trail, error: ThunderError) -> None:
        """Add an error to the problems, or raise it if problems are not collected."""
        if self.problems is None:
            raise error
        self.problems.append(self.resolved.problem(trail, error.problem, error.advice))


_OBJECTS: Final[WeakKeyDictionary[Host, dict[tuple[str, Any, str], Any]]] = WeakKeyDictionary()
"""The created objects, by plugin, specification and options: all programs share them."""


def _object(offered: Offered[PartSpec], part: Part) -> Any:
    objects = _OBJECTS.setdefault(host(), {})
    key = (offered.plugin.name, offered.spec, part.entry.text)
    return objects[key] if key in objects else objects.setdefault(key, _create(offered, part))


def _create(offered: Offered[PartSpec], part: Part) -> Any:
    spec = offered.spec
    kind = next(each.kind for each in LISTS.values() if each.spec is type(spec))
    assert kind is not None, "a table is added, not created"
    title = f"the {spec.word} {spec.name!r} of the {offered.plugin.title}"
    factory = host().import_object(offered)
    try:
        created = factory(part.options)
    except FAILURES as error:
        raise _creation_error(title, spec.load, error) from error
    if not isinstance(created, kind):
        article = "an" if kind.__name__[0] in "AEIOU" else "a"
        raise PluginError(
            f"{title} is of the type {type(created).__name__}; {spec.load} must return {article} {kind.__name__}"
        )
    if created.name != spec.name:
        raise PluginError(f"{title} has the name {created.name!r}, which must be that of its specification")
    return created


def _creation_error(title: str, load: str, error: BaseException) -> PluginError:
    advice: tuple[str, ...] = ("`optional: true` leaves it out where it cannot be used",)
    if isinstance(error, ThunderError):  # the plugin raised it on purpose, with a reason for users
        return PluginError(f"{title} cannot be used: {error.problem}", advice=(*error.advice, *advice))
    return PluginError(f"{title} could not be created: {failure(error, load)}", advice=advice)


def _may_be_left_out(part: Part, error: PluginError) -> bool:
    """Whether a part that cannot be used is optional, and not defective under ``THUNDER_STRICT=1``."""
    defect = error.__cause__ is not None and not isinstance(error.__cause__, ThunderError)
    return bool(part.options.optional) and not (defect and is_strict())


def _configured(part: Part, executor: Executor) -> Executor:
    options = part.options
    if not isinstance(options, ExecutorOptions) or not (
        options.include or options.exclude or options.on_decline != "next"
    ):
        return executor
    return ConfiguredExecutor(executor, options.include, options.exclude, options.on_decline)
