"""Plugins for these tests: modules, and the metadata that pip would write for them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from thunder_testing.distributions import write_metadata

NVFUSER = '''
"""A plugin with one executor, which is called like the plugin, and with a preset."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from thunder_core.plugins import ExecutorOptions, ExecutorSpec, Preset, hookimpl


class Tiles(BaseModel):
    """How work is cut."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    rows: int = 64
    """Of one tile."""
    columns: int = 64


class Options(ExecutorOptions):
    """Of the executor nvfuser."""

    cache: bool = True
    """Keep compiled regions on disk."""
    level: Literal["low", "high"] = "low"
    """How hard it tries."""
    size: int = Field(default=4, ge=1, le=64)
    share: float = 0.5
    names: list[str] = []
    tiles: Tiles = Tiles()
    limit: int | Literal["auto"] = "auto"

    @field_validator("size")
    @classmethod
    def _even(cls, value: int) -> int:
        if value % 2:
            raise ValueError(f"{value} is odd, and must be even")
        return value


@hookimpl
def thunder_executors():
    return [ExecutorSpec("nvfuser", "nvfuser_executor:make", Options, "fuses")]


@hookimpl
def thunder_presets():
    return [
        Preset("fused", "nvfuser_presets", "fused.yaml"),
        Preset("fused_more", "nvfuser_presets", "more.yaml"),
        Preset("npu", "nvfuser_presets", "npu.yaml", device="npu"),
        Preset("one", "nvfuser_presets", "npu.yaml", device="claimed_twice"),
        Preset("two", "nvfuser_presets", "npu.yaml", device="claimed_twice"),
        Preset("lost", "nvfuser_presets", "lost.yaml"),
        Preset("nowhere", "nvfuser_absent", "nowhere.yaml"),
    ]
'''

NVFUSER_EXECUTOR = """
from dataclasses import dataclass
from typing import Any

from thunder_core.executors import Declined, Executor


@dataclass(frozen=True)
class Fuser(Executor):
    options: Any
    name: str = "nvfuser"

    def claim(self, bound):
        return Declined(self.name, "it is a stand-in", implements=False)


def make(options):
    return Fuser(options.model_dump_json())
"""

KERNELS = '''
"""A plugin with several executors and transforms."""

from pydantic import field_validator

from thunder_core.plugins import ExecutorOptions, ExecutorSpec, TransformOptions, TransformSpec, hookimpl


class Bits(TransformOptions):
    """Of the transform quantize."""

    bits: int = 8
    scheme: str = "linear"


class Picky(ExecutorOptions):
    """Options that fail to check themselves."""

    size: int = 1

    @field_validator("size")
    @classmethod
    def _fails(cls, value):
        return {}[value]


@hookimpl
def thunder_executors():
    return [
        ExecutorSpec("fast", "kernels_objects:fast"),
        ExecutorSpec("slow", "kernels_objects:slow"),
        ExecutorSpec("renamed", "kernels_objects:fast"),
        ExecutorSpec("nothing", "kernels_objects:nothing"),
        ExecutorSpec("needs_device", "kernels_objects:needs_device"),
        ExecutorSpec("defect", "kernels_objects:defect"),
        ExecutorSpec("absent", "kernels_absent:make"),
        ExecutorSpec("picky", "kernels_objects:picky", Picky),
    ]


@hookimpl
def thunder_transforms():
    return [
        TransformSpec("quantize", "kernels_objects:quantize", Bits),
        TransformSpec("first", "kernels_objects:first"),
        TransformSpec("lonely", "kernels_objects:lonely"),
    ]
'''

KERNELS_OBJECTS = """
from dataclasses import dataclass
from typing import ClassVar

from thunder_core.errors import ExecutorError
from thunder_core.executors import OperatorExecutor
from thunder_core.passes.transform import Place, Transform


@dataclass(frozen=True)
class Quantize(Transform):
    name: ClassVar[str] = "quantize"
    place: ClassVar[Place] = Place.LAST
    bits: int
    scheme: str


@dataclass(frozen=True)
class First(Transform):
    name: ClassVar[str] = "first"
    place: ClassVar[Place] = Place.LAST
    before: ClassVar[tuple[str, ...]] = ("quantize",)


@dataclass(frozen=True)
class Lonely(Transform):
    name: ClassVar[str] = "lonely"
    place: ClassVar[Place] = Place.LAST
    conflicts: ClassVar[tuple[str, ...]] = ("constant_folding",)


def fast(options):
    return OperatorExecutor("fast", ())


def slow(options):
    return OperatorExecutor("slow", ())


def picky(options):
    return OperatorExecutor("picky", ())


def nothing(options):
    return None


def needs_device(options):
    raise ExecutorError("there is no such device", advice=("buy one",))


def defect(options):
    return 1 / 0


def quantize(options):
    return Quantize(options.bits, options.scheme)


def first(options):
    return First()


def lonely(options):
    return Lonely()
"""

FUSED = "executors: [{nvfuser: {level: high}}, fast]\nrecompute: aggressive\n"
NPU = "executors: [nowhere: {optional: true}, fast: {optional: true}]\ntransforms: [quantize]\n"
MORE = "extends: fused.yaml\ncache: same input\n"


def install(site: Path) -> None:
    """Write all of them into a folder of the path."""
    modules = {
        "nvfuser_plugin.py": NVFUSER,
        "nvfuser_executor.py": NVFUSER_EXECUTOR,
        "nvfuser_presets/__init__.py": "",
        "nvfuser_presets/fused.yaml": FUSED,
        "nvfuser_presets/more.yaml": MORE,
        "nvfuser_presets/npu.yaml": NPU,
        "kernels_plugin.py": KERNELS,
        "kernels_objects.py": KERNELS_OBJECTS,
        "broken_plugin.py": "raise RuntimeError('a broken plugin')\n",
    }
    for name, text in modules.items():
        (site / name).parent.mkdir(exist_ok=True)
        (site / name).write_text(text)
    distribution(site, "nvfuser", "0.3", requires=["torch>=2; extra == 'lib'"], extras=["lib"])
    distribution(site, "kernels", "1.0")
    distribution(site, "broken", "0.1")
    distribution(site, "vendor", "2.0", requires=["a-vendor-library>=2; extra == 'lib'"], extras=["lib"])


def distribution(site: Path, name: str, version: str, **more: Any) -> None:
    """The metadata of a distribution with one plugin."""
    points = {"plugins": {name: f"{name}_plugin"}, "interfaces": {name: 1}}
    write_metadata(site, f"thunder-plugin-{name}", version=version, **points, **more)
