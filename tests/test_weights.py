"""Folders of safetensors, as transformers writes them, and random weights at the true size."""

import gc
import json
import pickle
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from tiny_models import SIZES, TINY, save_tiny
from transformers import AutoModelForCausalLM

from minicache import models, weights
from minicache.model_config import CONFIGS, ModelError, tensor_shapes


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    folder = tmp_path_factory.mktemp("saved")
    return folder, {name: save_tiny(name, folder / name) for name in TINY}


@pytest.fixture
def llama(saved, tmp_path):
    """A copy of a tiny Llama's folder, to be spoiled."""
    return Path(shutil.copytree(saved[0] / "llama", tmp_path / "llama"))


def rewrite(folder, change):
    """Save the folder's tensors again after `change(tensors)`."""
    tensors = {
        name: value.clone() for name, value in load_file(folder / "model.safetensors").items()
    }
    change(tensors)
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})


def refusal(name_or_path, **options):
    with pytest.raises(ModelError) as caught:
        weights.load(name_or_path, **options)
    message = str(caught.value)
    assert message.endswith(".") and "\n" not in message
    return message


def run_python(code):
    command = [sys.executable, "-c", code]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def set_config(folder, **changes):
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | changes))


def assert_same(tensors, expected):
    assert set(tensors) == set(expected)
    for name, value in expected.items():
        assert torch.equal(tensors[name], value), name


@pytest.mark.parametrize("name", TINY)
def test_loads_what_transformers_saved(name, saved):
    folder, expected = saved
    checkpoint = weights.load(folder / name)
    assert_same(checkpoint.tensors, expected[name])
    assert list(checkpoint.tensors) == list(tensor_shapes(checkpoint.config))
    assert (checkpoint.config.name, checkpoint.folder) == (name, folder / name)


@pytest.mark.parametrize("name", ["llama", "qwen2"])
def test_loads_shards(name, tmp_path):
    expected = save_tiny(name, tmp_path, max_shard_size="50KB")
    assert len(list(tmp_path.glob("*.safetensors"))) > 3
    assert_same(weights.load(tmp_path).tensors, expected)


@pytest.mark.parametrize("stored", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize("wanted", [None, torch.bfloat16, torch.float32])
def test_dtypes(stored, wanted, tmp_path):
    expected = save_tiny("qwen3", tmp_path, dtype=stored)
    tensors = weights.load(str(tmp_path), dtype=wanted).tensors
    assert {value.dtype for value in tensors.values()} == {wanted or stored}
    assert_same(tensors, {name: value.to(wanted or stored) for name, value in expected.items()})


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="reads the map of the process")
def test_tensors_are_views_of_the_mapped_file(saved):
    def mapped():
        lines = Path("/proc/self/maps").read_text().splitlines()
        areas = [line.split()[0] for line in lines if str(saved[0] / "llama") in line]
        return [tuple(int(end, 16) for end in area.split("-")) for area in areas]

    tensors = weights.load(saved[0] / "llama").tensors
    held = [tensors[name] for name in tensors]
    areas = mapped()
    assert all(any(low <= value.data_ptr() < high for low, high in areas) for value in held)
    held.pop()
    gc.collect()
    assert len(mapped()) == len(areas) - 1, "whoever lets a tensor go lets its mapping go"
    areas = mapped()
    converted = weights.load(saved[0] / "llama", dtype=torch.bfloat16).tensors
    copies = [converted[name] for name in converted]
    assert mapped() == areas and len(copies) == len(tensors)
    del held, tensors
    gc.collect()
    assert mapped() == []


def test_head_stored_beside_a_tied_embedding(saved, tmp_path):
    folder = shutil.copytree(saved[0] / "llama-tied", tmp_path / "tied")
    embedding, head = "model.embed_tokens.weight", "lm_head.weight"
    rewrite(folder, lambda tensors: tensors.update({head: tensors[embedding].clone()}))
    assert_same(weights.load(folder).tensors, saved[1]["llama-tied"])
    rewrite(folder, lambda tensors: tensors[head].mul_(2))
    assert "lm_head.weight differs from model.embed_tokens.weight" in refusal(folder)


def test_stored_rotary_frequencies_are_ignored(llama, saved):
    frequencies = {f"model.layers.{i}.self_attn.rotary_emb.inv_freq": torch.ones(8) for i in (0, 1)}
    rewrite(llama, lambda tensors: tensors.update(frequencies))
    assert_same(weights.load(llama).tensors, saved[1]["llama"])


def test_missing_tensor(llama):
    rewrite(llama, lambda tensors: tensors.pop("model.layers.1.mlp.up_proj.weight"))
    assert "lacks the tensor model.layers.1.mlp.up_proj.weight of shape 96×64" in refusal(llama)


def test_missing_head_of_an_untied_model(llama):
    rewrite(llama, lambda tensors: tensors.pop("lm_head.weight"))
    assert "lacks the tensor lm_head.weight" in refusal(llama)


@pytest.mark.parametrize("extra", ["model.layers.3.input_layernorm.weight", "score.weight"])
def test_unexpected_tensor(llama, extra):
    rewrite(llama, lambda tensors: tensors.update({extra: torch.ones(64)}))
    assert f"unexpected tensor {extra} of shape 64" in refusal(llama)


def test_biases_that_the_config_does_not_announce(llama):
    bias = {"model.layers.0.self_attn.q_proj.bias": torch.ones(64)}
    rewrite(llama, lambda tensors: tensors.update(bias))
    assert "unexpected tensor model.layers.0.self_attn.q_proj.bias" in refusal(llama)


def test_wrong_shape(llama):
    set_config(llama, intermediate_size=97)
    message = refusal(llama)
    assert "mlp.gate_proj.weight of shape 96×64" in message and "asks for 97×64" in message


def test_unsupported_storage_type(llama):
    norm = "model.norm.weight"
    rewrite(llama, lambda tensors: tensors.update({norm: tensors[norm].to(torch.float8_e4m3fn)}))
    assert "stores model.norm.weight as F8_E4M3" in refusal(llama)


@pytest.mark.parametrize("keep", [0, 5, 100, 2000, -1])
def test_truncated_file(llama, keep):
    path = llama / "model.safetensors"
    path.write_bytes(path.read_bytes()[:keep])
    assert "model.safetensors cannot be read as safetensors" in refusal(llama)


def test_shards_and_index_that_disagree(tmp_path):
    save_tiny("llama", tmp_path, max_shard_size="50KB")
    index = tmp_path / "model.safetensors.index.json"
    original = index.read_text()

    def with_entry(name, shard):
        content = json.loads(original)
        content["weight_map"][name] = shard
        index.write_text(json.dumps(content))
        return refusal(tmp_path)

    first, second, *_ = sorted(path.name for path in tmp_path.glob("*.safetensors"))
    assert "says that phantom lies in" in with_entry("phantom", first)
    assert "says that model.embed_tokens.weight lies in" in with_entry(
        "model.embed_tokens.weight", second
    )
    assert "must be a file of the same folder" in with_entry(
        "model.norm.weight", "../x.safetensors"
    )
    assert "must be a file of the same folder" in with_entry("model.norm.weight", 3)
    assert "lacks gone.safetensors" in with_entry("model.norm.weight", "gone.safetensors")
    index.write_text('{"weight_map": {}}')
    assert "has no weight_map" in refusal(tmp_path)


def test_missing_shard(tmp_path):
    save_tiny("llama", tmp_path, max_shard_size="50KB")
    shard = sorted(tmp_path.glob("*.safetensors"))[1]
    shard.unlink()
    assert f"lacks {shard.name}" in refusal(tmp_path)


def test_pickles_are_refused_and_never_opened(llama, tmp_path):
    (llama / "model.safetensors").unlink()
    witness = tmp_path / "witness"

    class Payload:
        def __reduce__(self):
            return (Path.touch, (witness,))

    (llama / "pytorch_model.bin").write_bytes(pickle.dumps(Payload()))
    assert "pytorch_model.bin, a pickle" in refusal(llama)
    assert not witness.exists()
    pickle.loads((llama / "pytorch_model.bin").read_bytes())
    assert witness.exists()


def test_folders_that_are_no_models(llama, tmp_path):
    (llama / "model.safetensors").unlink()
    assert "holds no model.safetensors" in refusal(llama)
    assert "has no config.json" in refusal(tmp_path)
    (tmp_path / "x.gguf").touch()
    assert "name the file" in refusal(tmp_path)
    assert "is a file, but a model is a folder" in refusal(llama / "config.json")
    assert "There is no model 'qwen3-0.6' (did you mean qwen3-0.6b?)" in refusal("qwen3-0.6")
    assert "no file" in refusal(tmp_path / "absent.gguf")
    assert "load_format is 'pickle'" in refusal(llama, load_format="pickle")


def test_a_model_that_is_not_pulled(tmp_path, monkeypatch):
    monkeypatch.setenv("MINICACHE_CACHE", str(tmp_path))
    assert "run 'minicache models pull smollm2-135m'" in refusal("smollm2-135m")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", CONFIGS)
def test_dummy_has_the_shapes_of_the_named_config(name, tmp_path, monkeypatch):
    monkeypatch.setenv("MINICACHE_CACHE", str(tmp_path))
    checkpoint = weights.load(name, load_format="dummy")
    assert checkpoint.config == CONFIGS[name] and checkpoint.folder is None
    assert set(checkpoint.tensors) == set(tensor_shapes(CONFIGS[name]))
    key = "model.layers.1.self_attn.k_proj.weight"
    value = checkpoint.tensors[key]
    assert (value.dtype, tuple(value.shape)) == (torch.bfloat16, tensor_shapes(CONFIGS[name])[key])
    hidden = CONFIGS[name].hidden_size
    assert value.float().std().item() * hidden**0.5 == pytest.approx(1.0, rel=0.02)
    assert torch.all(checkpoint.tensors["model.norm.weight"] == 1.0)


def test_dummy_depends_on_seed_and_name_only():
    def load(seed=0, dtype=torch.float32):
        return weights.load("qwen2.5-0.5b", load_format="dummy", seed=seed, dtype=dtype).tensors

    first, again, other = load(), load(), load(seed=1)
    a, b = "model.layers.0.self_attn.k_proj.weight", "model.layers.1.self_attn.k_proj.weight"
    assert not torch.equal(first[a], first[b])
    assert torch.equal(again[b], first[b]) and torch.equal(again[a], first[a])
    assert not torch.equal(other[a], first[a])
    bias = first["model.layers.0.self_attn.q_proj.bias"]
    assert 0 < bias.abs().max().item() < 0.2


def test_dummy_of_a_folder_needs_no_weights(llama):
    (llama / "model.safetensors").unlink()
    checkpoint = weights.load(llama, load_format="dummy", dtype=torch.float32)
    assert checkpoint.folder == llama
    assert checkpoint.tensors["lm_head.weight"].shape == (101, 64)


def test_dummy_activations_keep_their_size_through_the_layers():
    """Logits of order one, so that sampling and timing see nothing degenerate."""
    from transformers import AutoConfig

    config = AutoConfig.for_model("llama", **SIZES | {"num_hidden_layers": 12, "vocab_size": 500})
    model = AutoModelForCausalLM.from_config(config)
    shapes = {name: tuple(value.shape) for name, value in model.named_parameters()}
    from minicache.weights.dummy import DummyTensors

    tensors = DummyTensors(shapes, torch.float32, torch.device("cpu"), 0)
    model.load_state_dict(dict(tensors))
    logits = model(torch.arange(32)[None]).logits
    assert 0.3 < logits.std().item() < 3.0


def test_importing_configs_and_models_loads_no_torch():
    code = "import sys, minicache.model_config, minicache.models; print('torch' in sys.modules)"
    printed = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert printed.stdout.strip() == "False"


MEASURE = """
import time, torch
from pathlib import Path
torch.set_num_threads(1)
def peak():
    return int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]) / 1000
before, wall, cpu = peak(), time.perf_counter(), time.process_time()
from minicache import weights
tensors = weights.load("smollm2-135m", dtype=torch.{dtype}).tensors
kept = {{name: tensors[name] for name in tensors}}
total = sum(float(value.sum()) for value in kept.values())
size = sum(value.numel() * value.element_size() for value in kept.values()) / 1e6
print(time.perf_counter() - wall, time.process_time() - cpu, peak() - before, size)
"""


@pytest.mark.model
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads the peak memory there")
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_real_model_is_ready_quickly_and_takes_no_more_than_its_weights(dtype):
    """Every weight is touched. In bfloat16, one stored float32 tensor is in memory at a time."""
    wall, cpu, grown, size = map(float, run_python(MEASURE.format(dtype=dtype)).split())
    print(f"{dtype}: {wall:.2f} s ({cpu:.2f} s CPU), {grown:.0f} MB more for {size:.0f} MB")
    assert cpu < 2.0
    assert size * 0.98 < grown < size + 150


@pytest.mark.model
def test_the_real_model_loads_by_name_and_by_folder():
    by_name, by_folder = weights.load("smollm2-135m"), weights.load(models.path("smollm2-135m"))
    assert by_name.config == by_folder.config == CONFIGS["smollm2-135m"]
    assert {value.dtype for value in by_name.tensors.values()} == {torch.float32}
