"""What a config.json may ask for that would change the arithmetic, and that the decoder lacks."""

from __future__ import annotations

from collections.abc import Mapping

from minicache.model_config.config import Architecture
from minicache.model_config.fields import Fields

SUPPORTED = "minicache runs dense models of the Llama, Qwen2 and Qwen3 architecture"
CAUSAL_LM: Mapping[Architecture, str] = {
    Architecture.LLAMA: "LlamaForCausalLM",
    Architecture.QWEN2: "Qwen2ForCausalLM",
    Architecture.QWEN3: "Qwen3ForCausalLM",
}
_EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts")
_DEFAULT_MAX_WINDOW_LAYERS = 28
_DEFAULT_WINDOW = 4096


def refuse_unsupported(fields: Fields) -> None:
    """Raise `ModelError` naming the first setting that would be computed wrongly."""
    if fields.string("hidden_act", "silu") != "silu":
        fields.refuse("hidden_act", "only 'silu' is")
    quantization = fields.section("quantization_config")
    if quantization:
        method = quantization.get("quant_method", "of an unknown method")
        fields.refuse("quantization_config", "use the bfloat16 or float32 release", method)
    for key in _EXPERTS:
        if fields.integer(key, 0, least=0) > 1:
            fields.refuse(key, f"{SUPPORTED}, no mixtures of experts")
    if "AutoModelForCausalLM" in fields.section("auto_map"):
        fields.refuse("auto_map", "code that comes with a model is never run")
    _refuse_partial_rotation(fields)
    _refuse_sliding_window(fields)


def _refuse_partial_rotation(fields: Fields) -> None:
    for raw in (fields.raw, fields.section("rope_parameters"), fields.section("rope_scaling")):
        part = Fields(raw, fields.where)
        if part.number("partial_rotary_factor", 1.0) != 1.0:
            part.refuse("partial_rotary_factor", "only the rotation of whole heads is")


def _refuse_sliding_window(fields: Fields) -> None:
    """Qwen files carry a window that is mostly switched off; it counts where a layer uses it."""
    kinds = fields.raw.get("layer_types")
    if kinds is not None:
        if set(fields.strings("layer_types")) != {"full_attention"}:
            fields.refuse("layer_types", "only 'full_attention' is", sorted(set(kinds)))
        return
    first = fields.integer("max_window_layers", _DEFAULT_MAX_WINDOW_LAYERS, least=0)
    if fields.flag("use_sliding_window") and first < fields.integer("num_hidden_layers"):
        window = fields.raw.get("sliding_window", _DEFAULT_WINDOW)
        if window is not None:
            fields.refuse("sliding_window", "only full attention is", window)
