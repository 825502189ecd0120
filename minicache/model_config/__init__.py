"""The shape of a model: as data, as read from config.json, and of some models known by name."""

from minicache.model_config.config import Architecture, ModelConfig, ModelError, RopeScaling
from minicache.model_config.layout import tensor_shapes
from minicache.model_config.named import CONFIGS
from minicache.model_config.parse import parse_config, read_config

__all__ = [
    "CONFIGS",
    "Architecture",
    "ModelConfig",
    "ModelError",
    "RopeScaling",
    "parse_config",
    "read_config",
    "tensor_shapes",
]
