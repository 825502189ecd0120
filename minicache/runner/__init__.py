"""The executor with a real model."""

from minicache.runner.runner import ModelRunner, TokenSampler

__all__ = ["ModelRunner", "TokenSampler"]
