"""Models of LitGPT and Hugging Face, compiled, against eager."""

from __future__ import annotations

import pytest

from tests.models.battery import CASES, MAY_REFUSE
from tests.subjects import SUBJECT
from thunder_core.errors import DataDependentError

OF_EACH_KIND = (
    "transformers/bert/training",  # an encoder of text
    "transformers/llama/decode",  # a decoder, with a cache that the model returns
    "transformers/gpt2/training from every output",
    "transformers/mamba",  # a recurrence
    "transformers/mixtral/training",  # a mixture of experts
    "transformers/t5",  # from text to text
    "transformers/vit/training",  # attention over an image
    "transformers/resnet/training",  # convolutions, and statistics that training updates
    "transformers/clip/training",  # images and text
    "transformers/wavlm/training",  # speech; which layers are dropped depends on values
    "transformers/hubert/training in evaluation mode",
    "transformers/hubert/training of every layer",
    "transformers/patchtst/training",  # time series
    "litgpt/mixtral",  # the experts depend on values
    "litgpt/llama3/training",
    "litgpt/llama3/decode",  # a cache in buffers
    "litgpt/gemma2/decode",  # a ring buffer, whose positions depend on values
)
"""One case of each kind of architecture, and of each way to run a model."""


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", OF_EACH_KIND)
@pytest.mark.slow
def test_a_model_of_each_kind(name: str) -> None:
    check(name)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", [name for name in CASES if name not in OF_EACH_KIND])
@pytest.mark.battery
def test_model(name: str) -> None:
    check(name)


def check(name: str) -> None:
    """Same behaviour as eager, or a refusal that says where and what to do if the model branches on values."""
    try:
        CASES[name](SUBJECT)
    except DataDependentError as error:
        if name not in MAY_REFUSE:
            raise
        assert error.location is not None  # noqa: PT017 - passing is right as well
        assert error.advice  # noqa: PT017
