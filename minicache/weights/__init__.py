"""A model's weights: from safetensors, mapped into memory, or random at the true size."""

from minicache.model_config import CONFIGS, ModelError
from minicache.weights.checkpoint import Checkpoint, load

__all__ = ["CONFIGS", "Checkpoint", "ModelError", "load"]
