"""config.json as transformers writes it, read; what is not supported, refused by name."""

import json
import math

import pytest
from transformers import AutoConfig, LlamaConfig, Qwen2Config, Qwen3Config

from minicache.model_config import (
    CONFIGS,
    Architecture,
    ModelError,
    RopeScaling,
    parse_config,
    read_config,
    tensor_shapes,
)

SIZES = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "vocab_size": 50,
    "max_position_embeddings": 512,
    "rms_norm_eps": 1e-5,
}
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 128,
}


def llama(**changes):
    return {"model_type": "llama", "architectures": ["LlamaForCausalLM"], **SIZES, **changes}


def qwen(number=3, **changes):
    classes = [f"Qwen{number}ForCausalLM"]
    return {"model_type": f"qwen{number}", "architectures": classes, **SIZES, **changes}


CONFIG_CLASSES = [
    LlamaConfig(**SIZES, num_key_value_heads=2),
    LlamaConfig(**SIZES, head_dim=32, attention_bias=True, mlp_bias=True, tie_word_embeddings=True),
    LlamaConfig(**SIZES, rope_parameters={**LLAMA3, "rope_theta": 500_000.0}),
    Qwen2Config(**SIZES, num_key_value_heads=1, tie_word_embeddings=True, eos_token_id=[7, 9]),
    Qwen3Config(**SIZES, num_key_value_heads=2, head_dim=24, eos_token_id=7),
    Qwen3Config(**SIZES, num_key_value_heads=4, attention_bias=True),
]


@pytest.mark.parametrize("theirs", CONFIG_CLASSES, ids=lambda config: config.model_type)
def test_reads_what_transformers_writes(theirs, tmp_path):
    theirs.save_pretrained(tmp_path)
    ours = read_config(tmp_path, "tiny")
    assert ours.architecture.value == theirs.model_type
    assert ours.num_layers == theirs.num_hidden_layers
    assert (ours.num_heads, ours.num_kv_heads) == (4, theirs.num_key_value_heads)
    assert ours.head_dim == getattr(theirs, "head_dim", 16)
    assert ours.rope_theta == theirs.rope_parameters["rope_theta"]
    assert (ours.rope_scaling is not None) == (theirs.rope_parameters["rope_type"] == "llama3")
    assert ours.tie_word_embeddings == theirs.tie_word_embeddings
    assert ours.rms_norm_eps == theirs.rms_norm_eps
    eos = theirs.eos_token_id
    wanted = eos if isinstance(eos, list) else [eos] if eos is not None else []
    assert ours.eos_token_ids == tuple(wanted)


@pytest.mark.parametrize("theirs", CONFIG_CLASSES, ids=lambda config: config.model_type)
def test_layout_is_that_of_transformers(theirs, tmp_path):
    import torch
    from transformers import AutoModelForCausalLM

    theirs.save_pretrained(tmp_path)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(theirs)
    expected = {name: tuple(value.shape) for name, value in model.named_parameters()}
    ours = read_config(tmp_path)
    assert tensor_shapes(ours) == expected
    assert ours.num_parameters == sum(math.prod(shape) for shape in expected.values())


@pytest.mark.parametrize("model_type", ["llama", "qwen2", "qwen3"])
def test_absent_settings_mean_what_they_mean_to_transformers(model_type, tmp_path):
    raw = {"model_type": model_type, **SIZES, "num_key_value_heads": 2}
    del raw["rms_norm_eps"]
    (tmp_path / "config.json").write_text(json.dumps(raw))
    ours, theirs = read_config(tmp_path), AutoConfig.from_pretrained(tmp_path)
    assert ours.rms_norm_eps == theirs.rms_norm_eps
    assert ours.rope_theta == theirs.rope_parameters["rope_theta"]
    assert ours.tie_word_embeddings == theirs.tie_word_embeddings
    assert ours.head_dim == getattr(theirs, "head_dim", SIZES["hidden_size"] // 4)


def test_old_and_new_spelling_of_rotary_settings_agree():
    old = llama(rope_theta=500_000.0, rope_scaling=LLAMA3, torch_dtype="bfloat16")
    older = llama(rope_theta=500_000.0, rope_scaling={**LLAMA3, "type": "llama3"})
    new = llama(rope_parameters={**LLAMA3, "rope_theta": 500_000.0}, dtype="bfloat16")
    assert parse_config(old, "x") == parse_config(new, "x") == parse_config(older, "x")
    assert parse_config(new, "x").rope_scaling == RopeScaling(8.0, 1.0, 4.0, 128)


def test_qwen2_has_biases_on_q_k_v_only_and_qwen3_norms_heads():
    qwen2, qwen3 = parse_config(qwen(2), "x"), parse_config(qwen(3), "x")
    assert (qwen2.attention_bias, qwen2.output_bias, qwen2.qk_norm) == (True, False, False)
    assert (qwen3.attention_bias, qwen3.output_bias, qwen3.qk_norm) == (False, False, True)
    assert qwen3.head_dim == 128


def test_end_of_sequence_comes_from_generation_config_first():
    assert parse_config(llama(eos_token_id=2), "x").eos_token_ids == (2,)
    assert parse_config(llama(eos_token_id=2), "x", {"eos_token_id": [3, 2]}).eos_token_ids == (
        3,
        2,
    )
    assert parse_config(llama(eos_token_id=None), "x", {"bos_token_id": 1}).eos_token_ids == ()


REFUSED = [
    (llama(model_type="mixtral"), "model_type 'mixtral'"),
    (llama(model_type="qwen3_moe"), "model_type 'qwen3_moe'"),
    (llama(model_type=None), "model_type None"),
    (llama(architectures=["LlamaForSequenceClassification"]), "LlamaForSequenceClassification"),
    (llama(architectures=["MistralForCausalLM"]), "MistralForCausalLM"),
    (llama(hidden_act="gelu"), "hidden_act 'gelu'"),
    (llama(quantization_config={"quant_method": "gptq"}), "quantization_config 'gptq'"),
    (llama(quantization_config={"bits": 4}), "quantization_config"),
    (llama(rope_scaling={"type": "linear", "factor": 2.0}), "rope_type 'linear'"),
    (llama(rope_scaling={"rope_type": "dynamic", "factor": 2.0}), "rope_type 'dynamic'"),
    (qwen(rope_parameters={"rope_type": "yarn", "rope_theta": 1e6}), "rope_type 'yarn'"),
    (qwen(rope_parameters={"rope_type": "longrope"}), "rope_type 'longrope'"),
    (llama(partial_rotary_factor=0.5), "partial_rotary_factor 0.5"),
    (llama(rope_parameters={"partial_rotary_factor": 0.25}), "partial_rotary_factor 0.25"),
    (qwen(use_sliding_window=True, max_window_layers=1, sliding_window=128), "sliding_window 128"),
    (qwen(use_sliding_window=True, max_window_layers=0), "sliding_window 4096"),
    (qwen(layer_types=["full_attention", "sliding_attention"]), "sliding_attention"),
    (qwen(num_experts=8), "num_experts 8"),
    (llama(num_local_experts=4), "num_local_experts 4"),
    (llama(auto_map={"AutoModelForCausalLM": "modeling_x.X"}), "auto_map"),
]


@pytest.mark.parametrize(("raw", "named"), REFUSED, ids=[named for _, named in REFUSED])
def test_unsupported_settings_are_refused_by_name(raw, named):
    with pytest.raises(ModelError) as caught:
        parse_config(raw, "some-model")
    message = str(caught.value)
    assert named in message and "some-model" in message and "not supported" in message
    assert message.endswith(".") and "\n" not in message


HARMLESS = [
    qwen(2, use_sliding_window=False, sliding_window=4096, max_window_layers=0),
    qwen(2, use_sliding_window=True, sliding_window=4096, max_window_layers=2),
    qwen(3, use_sliding_window=True, sliding_window=None, max_window_layers=0),
    qwen(3, layer_types=["full_attention", "full_attention"], sliding_window=64),
    llama(quantization_config=None, num_experts=0, partial_rotary_factor=1.0),
    llama(rope_scaling={"rope_type": "default"}, auto_map={"AutoTokenizer": "x.Y"}),
    llama(pretraining_tp=2, sliding_window=4096, unheard_of="value"),
]


@pytest.mark.parametrize("raw", HARMLESS)
def test_settings_that_change_nothing_are_accepted(raw):
    assert parse_config(raw, "x").num_layers == 2


WRONG = [
    (llama(hidden_size=None), "no hidden_size"),
    (llama(num_hidden_layers=0), "num_hidden_layers 0"),
    (llama(num_hidden_layers=True), "num_hidden_layers True"),
    (llama(vocab_size="many"), "vocab_size 'many'"),
    (llama(rms_norm_eps=-1e-5), "rms_norm_eps -1e-05"),
    (llama(rope_theta=float("nan")), "rope_theta nan"),
    (llama(tie_word_embeddings="yes"), "tie_word_embeddings 'yes'"),
    (llama(rope_scaling="yarn"), "rope_scaling 'yarn'"),
    (llama(rope_scaling={"rope_type": "llama3"}), "no factor"),
    (llama(eos_token_id="</s>"), "eos_token_id '</s>'"),
    (llama(eos_token_id=[1, -1]), "eos_token_id [1, -1]"),
    (llama(num_key_value_heads=3), "4 query heads on 3 key-value heads"),
    (llama(head_dim=15), "head_dim 15"),
    (qwen(layer_types="full_attention"), "layer_types"),
]


@pytest.mark.parametrize(("raw", "named"), WRONG, ids=[named for _, named in WRONG])
def test_wrong_values_are_named(raw, named):
    with pytest.raises(ModelError) as caught:
        parse_config(raw, "some-model")
    assert named in str(caught.value) and "some-model" in str(caught.value)


@pytest.mark.parametrize("text", ["", "{", "[1]", "null", "[" * 100_000, "\ud800"])
def test_malformed_json_is_one_sentence(text, tmp_path):
    (tmp_path / "config.json").write_bytes(text.encode("utf-8", "surrogatepass"))
    with pytest.raises(ModelError) as caught:
        read_config(tmp_path)
    assert "config.json" in str(caught.value) and "fetch the file again" in str(caught.value)


def test_folder_without_config(tmp_path):
    with pytest.raises(ModelError, match="has no config.json, so it is not a model folder"):
        read_config(tmp_path)


PUBLISHED_PARAMETERS = {
    "smollm2-135m": 134_515_008,
    "llama-3.2-1b": 1_235_814_400,
    "llama-3.1-8b": 8_030_261_248,
    "qwen2.5-0.5b": 494_032_768,
    "qwen3-0.6b": 596_049_920,
    "qwen3-8b": 8_190_735_360,
}


def test_named_configs_have_the_published_number_of_parameters():
    """The hub's model pages show these totals, from the safetensors heads."""
    assert {name: config.num_parameters for name, config in CONFIGS.items()} == PUBLISHED_PARAMETERS
    assert all(config.name == name for name, config in CONFIGS.items())
    assert {config.architecture for config in CONFIGS.values()} == set(Architecture)


def test_named_configs_cannot_be_changed():
    with pytest.raises(TypeError):
        CONFIGS["mine"] = CONFIGS["qwen3-8b"]


def test_kv_bytes_of_a_known_model():
    """Llama-3.1-8B in bfloat16: 128 KiB a token (2 · 32 layers · 8 heads · 128 · 2 bytes)."""
    assert CONFIGS["llama-3.1-8b"].kv_bytes_per_token(2) == 128 * 1024
