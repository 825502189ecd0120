"""A Llama-family decoder in plain torch over a paged cache."""

from minicache.model.decoder import Attentions, Decoder
from minicache.model.inputs import StepInputs
from minicache.model.ops import HeadShape, Ops, TorchOps
from minicache.model.rope import Rope, make_rope

__all__ = [
    "Attentions",
    "Decoder",
    "HeadShape",
    "Ops",
    "Rope",
    "StepInputs",
    "TorchOps",
    "make_rope",
]
