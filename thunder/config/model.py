"""The options of a configuration, as a pydantic model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import inf
from typing import Annotated, Any, Literal, get_args

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    InstanceOf,
    PlainSerializer,
    ValidationError,
    WithJsonSchema,
)
from pydantic.json_schema import SkipJsonSchema
from pydantic_core import PydanticCustomError

from thunder.config.byte_counts import BYTES, read_bytes
from thunder.config.declared_sizes import DeclaredSizes
from thunder.config.entry import Entry, checked, read_entries, refusal
from thunder.config.problems import Problem, describe, place_of, refuse, sentences
from thunder_core.errors import OptionError, suggestion
from thunder_core.settings import AllowRecompiles, CacheMode, SharpEdges

Policy = Literal["none", "cheap", "aggressive"]

_SYMBOLIC = '"symbolic values" is not available yet: numbers are compiled as constants'
_SYMBOLIC_ADVICE = "use dynamic=True, with which sizes of inputs may vary"


class RecomputeBudget(BaseModel):
    """A policy of recomputation: ``recompute: {budget: 0.5}``."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    budget: float = Field(
        ge=0,
        strict=True,
        allow_inf_nan=False,
        description="Save at most this share of the bytes that the default saves, if any choice does.",
    )


def _cache(value: Any) -> Any:
    if value == "symbolic values":
        raise refusal(_SYMBOLIC)
    return value


def _allow_recompiles(value: Any) -> Any:
    if not (isinstance(value, bool) or value == "eager"):
        raise refusal(f'must be true, false or "eager", not {describe(value)}')
    return value


def _dynamic(value: Any) -> Any:
    if isinstance(value, Mapping):
        try:
            return DeclaredSizes.of(value)
        except OptionError as error:
            raise refusal(error.problem) from error
    if value is not None and not isinstance(value, bool | DeclaredSizes) and value != "automatic":
        raise refusal(
            f'must be true, false or "automatic", or, in thunder.jit, sizes by parameter: '
            f'{{"x": {{0: Dim("batch")}}}}; not {describe(value)}'
        )
    return "automatic" if value is None else value


def _plain_dynamic(value: Any) -> Any:
    return value.plain() if isinstance(value, DeclaredSizes) else value


def _tune(value: Any) -> Any:
    if isinstance(value, bool) or (isinstance(value, int | float) and 0 < value < inf):
        return value
    raise refusal(f"must be true, false or a positive number of seconds, not {describe(value)}")


def _recompute(value: Any) -> Any:
    if isinstance(value, Mapping):
        return RecomputeBudget.model_validate(value)
    names = get_args(Policy)
    if isinstance(value, RecomputeBudget) or value in names:
        return value
    hint = suggestion(value, names) if isinstance(value, str) else ""
    named = (
        f"{value!r} is not a recompute policy"
        if isinstance(value, str)
        else f"{describe(value)} is not a recompute policy"
    )
    raise refusal(named + (hint or f"; it is one of {', '.join(map(repr, names))}, or {{budget: share}}"))


def _requires(value: Any) -> Any:
    if not isinstance(value, list | tuple):
        raise refusal(f"must be a list of requirements, not {describe(value)}")
    return tuple(checked(value, _requirements))


def _requirements(values: Any) -> Iterator[str | PydanticCustomError]:
    from packaging.requirements import InvalidRequirement, Requirement  # here: few configurations have any

    for value in values:
        try:
            yield value if Requirement(value).url is None else refusal("a URL cannot be checked; give a version")
        except (InvalidRequirement, TypeError) as error:
            what = str(error).partition("\n")[0] if isinstance(value, str) else f"not {describe(value)}"
            yield refusal(f"must be a requirement like 'thunder-plugin-cudnn>=0.1': {what}")


def _entries(entries: tuple[Entry, ...] | None) -> Any:
    return None if entries is None else [entry.plain() for entry in entries]


# The schema of entries depends on what is installed; the command ``thunder schema`` prints it.
Entries = Annotated[tuple[Annotated[InstanceOf[Entry], WithJsonSchema({})], ...], PlainSerializer(_entries)]
Dynamic = Annotated[
    bool | Literal["automatic"] | SkipJsonSchema[InstanceOf[DeclaredSizes]],
    BeforeValidator(_dynamic),
    PlainSerializer(_plain_dynamic),
]
Count = Annotated[int, Field(strict=True, ge=1)]


class ThunderConfig(BaseModel):
    """A configuration: how programs are compiled. Immutable and hashable.

    Raises:
        ConfigError: an option is unknown, or its value is not accepted. The names in lists, and the options of these
            entries, are checked when the configuration is used.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", title="Thunder")

    # Descriptions are arguments, because pydantic reads docstrings of fields from the source, which takes 40 ms.
    extends: str | None = Field(
        default=None,
        strict=True,
        min_length=1,
        description="The preset, or the file relative to this one, that this configuration changes.",
    )
    requires: Annotated[tuple[str, ...], BeforeValidator(_requires)] = Field(
        default=(), description="Distributions that must be installed, with versions: `thunder-plugin-cudnn>=0.1`."
    )
    executors: Annotated[Entries | None, BeforeValidator(read_entries("executors"))] = Field(
        default=None,
        description="The executors that are offered the operations, in order. The reference executor is always last. "
        "By default those of the preset for the program's device.",
    )
    transforms: Annotated[Entries, BeforeValidator(read_entries("transforms"))] = Field(
        default=(), description="Passes to add to the pipeline, or options of those that run by default."
    )
    tensor_classes: Annotated[Entries, BeforeValidator(read_entries("tensor_classes"))] = Field(
        default=(),
        description="Support for tensors that hold tensors (`DTensor`, quantized weights, jagged tensors): of the "
        "entries, the one for the most derived base of a tensor's class. Empty: such tensors are refused.",
    )
    interceptions: Annotated[Entries, BeforeValidator(read_entries("interceptions"))] = Field(
        default=(),
        description="Plugins with only a table of interceptions, which record calls that the core refuses "
        "(programs in TorchScript).",
    )
    front_end: Annotated[str, Field(strict=True, min_length=1)] = Field(
        default="run", description="How programs are recorded."
    )
    cache: Annotated[CacheMode, BeforeValidator(_cache)] = Field(
        default="constant values",
        description="Guard everything that the program reads, or trust that only the data of tensors changes, or "
        "compile at each call.",
    )
    dynamic: Dynamic = Field(
        default="automatic",
        description='The sizes of inputs that may vary without recompilation: "automatic", those that differed '
        "between calls, or that `torch._dynamo.mark_dynamic` marked; true, all that can, from the first "
        "call on; false, none. Sizes of single arguments are declared in Python: "
        '`thunder.jit(f, dynamic={"x": {0: Dim("batch")}})`.',
    )
    compile: Literal["ahead", "behind"] = Field(
        default="ahead",
        description="When fused regions are compiled: before the first call runs them, or by other processes while "
        "PyTorch's kernels run them.",
    )
    sharp_edges: SharpEdges = Field(
        default="warn",
        description="What to do when the program consumes Python's or NumPy's random state. With error, a program "
        "whose Python reads values of tensors is refused, too.",
    )
    recompute: Annotated[Policy | RecomputeBudget, BeforeValidator(_recompute)] = Field(
        default="cheap", description="The policy for values that backward recomputes instead of saving them."
    )
    memory: Annotated[
        int | None,
        BeforeValidator(read_bytes),
        WithJsonSchema(
            {"anyOf": [{"type": "integer", "minimum": 1}, {"type": "string", "pattern": BYTES}, {"type": "null"}]}
        ),
    ] = Field(
        default=None,
        description="The memory that a program may need, in bytes or as text such as `22 GiB`: parameters, buffers, "
        "arguments, gradients and all values that forward and backward compute. Backward recomputes what does not fit.",
    )
    allow_recompiles: Annotated[AllowRecompiles, BeforeValidator(_allow_recompiles)] = Field(
        default=True,
        description="Whether a call may compile a program after the first one, or after the calls in a "
        '`thunder.warm_up`. With false, such a call raises an error that names the guard that decides; with "eager", '
        "eager PyTorch runs it.",
    )
    recompile_warning: Count = Field(
        default=8,
        description="Number of compilations of one program after which one warning says what changes between "
        "its calls.",
    )
    recompile_limit: Count = Field(
        default=64,
        description="The largest number of compiled entries of a function or module. After that, eager PyTorch runs "
        "the calls whose guards hold for none of them.",
    )
    outcome_limit: Count = Field(
        default=16,
        description="The largest number of entries for calls that differ only in values that Python reads from "
        "tensors. After that, eager PyTorch runs the calls with other values.",
    )
    tune: Annotated[bool | float, BeforeValidator(_tune)] = Field(
        default=False,
        description="Choose the executors of a module by measurement at its first call, as `thunder tune` does, within "
        "this number of seconds. True: 120.",
    )

    def __init__(self, **values: Any) -> None:
        try:
            super().__init__(**values)
        except ValidationError as error:
            refuse(
                Problem(None, None, place_of(trail), text, advice_on(text))
                for trail, text in sentences(error, type(self), values)
            )


def parse(values: Mapping[str, Any]) -> ThunderConfig:
    """The configuration with these fields. Raises pydantic's ValidationError, with the location of each error."""
    blank = ThunderConfig.__new__(ThunderConfig)
    config: ThunderConfig = ThunderConfig.__pydantic_validator__.validate_python(dict(values), self_instance=blank)
    return config


def advice_on(text: str) -> tuple[str, ...]:
    """The advice for a message, if it has none itself."""
    return (_SYMBOLIC_ADVICE,) if text == _SYMBOLIC else ()
