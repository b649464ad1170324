"""Models for images from torchvision and timm, as ``torchvision:resnet50`` and ``timm:vit_large_patch16_224``.

Those of torchvision classify images, or each pixel of them; timm's classify images. All have random weights.
"""

from __future__ import annotations

import importlib.util
from typing import Any

from benchmarks.models.model import BenchmarkModel, Features, native_settings, require

PREFIXES = ("torchvision:", "timm:")
IMAGE = 224
"""Height and width of images by default, except for models of timm that have another size."""
CLASSES = 1000
PIXEL_CLASSES = 21
"""Number of classes of pixels, those of PASCAL VOC."""


def accepted(prefix: str) -> list[str]:
    """The names of all models of a library; empty if it is not installed."""
    library = prefix.removesuffix(":")
    if importlib.util.find_spec(library) is None:
        return []
    if library == "timm":
        import timm

        return [prefix + name for name in timm.list_models()]
    from torchvision import models

    return [prefix + name for module in (models, models.segmentation) for name in models.list_models(module)]


def require_packages(name: str) -> None:
    """Raise `MissingPackage` if torchvision, or timm for its models, is not installed."""
    if name.startswith("timm:"):
        require("timm", name)
    require("torchvision", name)  # timm imports it


def has_sequences(name: str) -> bool:
    """None has: images have the size that is a setting of the model."""
    return False


def settings(name: str) -> tuple[dict[str, Any], dict[str, str]]:
    """Height and width of images, number of classes; an empty dict: there are no other names for them."""
    library, _, model = name.partition(":")
    if library == "timm":
        import timm

        return {"image": timm.get_pretrained_cfg(model).input_size[-1], "classes": CLASSES}, {}
    return {"image": IMAGE, "classes": PIXEL_CLASSES if _predicts_pixels(name) else CLASSES}, {}


def make(name: str, overrides: dict[str, Any]) -> BenchmarkModel:
    """The model with random weights on the default device."""
    library, _, model = name.partition(":")
    defaults, words = settings(name)
    chosen = defaults | native_settings(overrides, words, defaults, name)
    image, classes = chosen["image"], chosen["classes"]
    features = Features((3, image, image))
    if library == "timm":
        import timm

        return BenchmarkModel(timm.create_model(model, num_classes=classes), classes, features)
    import torchvision

    if _predicts_pixels(name):
        module = torchvision.models.get_model(model, weights=None, weights_backbone=None, num_classes=classes)
        return BenchmarkModel(module, classes, features, positions=(image, image))
    return BenchmarkModel(torchvision.models.get_model(model, weights=None, num_classes=classes), classes, features)


def _predicts_pixels(name: str) -> bool:
    from torchvision import models

    return name.partition(":")[2] in models.list_models(models.segmentation)
