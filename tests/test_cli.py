"""The command line: what it prints, how it ends, and what it says when something is wrong."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from tiny_tokenizers import byte_level

from minicache import __version__
from minicache.cli import failure, main
from minicache.model_config import parse_config, tensor_shapes
from minicache.request import RequestRefused

CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 344,
    "max_position_embeddings": 8192,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "hidden_act": "silu",
    "tie_word_embeddings": True,
    "torch_dtype": "float32",
}
TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


@pytest.fixture
def tiny_llama(tmp_path: Path) -> Path:
    """A model folder of 100,000 random weights, with a tokenizer and a chat template."""
    folder = tmp_path / "tiny-llama"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(CONFIG))
    random = torch.Generator().manual_seed(0)
    shapes = tensor_shapes(parse_config(CONFIG, "tiny-llama"))
    tensors = {name: torch.randn(shape, generator=random) * 0.1 for name, shape in shapes.items()}
    save_file(tensors, folder / "model.safetensors")
    byte_level().save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": TEMPLATE}))
    return folder


def run(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """The command in a process of its own, as a person runs it."""
    return subprocess.run(
        [sys.executable, "-m", "minicache", *words],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_help_is_quick_and_loads_nothing_heavy():
    code = (
        "import sys\n"
        "from minicache.cli import main\n"
        "try: main(['--help'])\n"
        "except SystemExit as end: assert end.code == 0\n"
        "heavy = {'torch', 'triton', 'numpy', 'tokenizers', 'rich.live'} & sys.modules.keys()\n"
        "assert not heavy, heavy\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for command in ("demo", "generate", "models", "bench", "record", "progress"):
        assert f"  {command} " in done.stdout


def test_version():
    assert run("--version").stdout == f"minicache {__version__}\n"


@pytest.mark.parametrize("words", [[], ["models"], ["bench"], ["record"]])
def test_a_group_alone_shows_its_help(words: list[str], capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as end:
        main(words)
    assert end.value.code == 0
    out, err = capsys.readouterr()
    assert "Commands:" in out and not err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["nonsense"], "nonsense"),
        (["demo", "--nonsense"], "--nonsense"),
        (["demo", "--policy", "random"], "prefill-first"),
        (["demo", "--max-num-batched-tokens", "many"], "--max-num-batched-tokens"),
        (["demo", "--max-num-batched-tokens", "0"], "max_num_batched_tokens is 0"),
        (["demo", "--max-num-batched-tokens", "3"], "at least 4"),
        (["demo", "--dtype", "int8"], "bfloat16"),
        (["generate"], "prompt"),
        (["generate", "hello", "--max-tokens", "0"], "max_tokens is 0"),
        (["generate", "hello", "--temperature", "-1"], "temperature is -1"),
        (["generate", "hello", "--top-p", "2"], "top_p is 2"),
        (["models", "pull", "no-such-model"], "no-such-model"),
        (["models", "path", "no-such-model"], "no-such-model"),
    ],
)
def test_a_mistake_is_one_sentence(words: list[str], said: str, capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as end:
        main(words)
    assert end.value.code in (1, 2)
    out, err = capsys.readouterr()
    assert not out and len(err.splitlines()) == 1
    assert err.startswith("minicache: ") and said in err


def test_a_mistake_that_is_no_command_is_code_2_and_any_other_code_1():
    assert run("nonsense").returncode == 2
    assert run("models", "pull", "no-such-model").returncode == 1


def said_by(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """The one sentence on stderr of a command that fails, run in this process."""
    with pytest.raises(SystemExit) as end:
        main(words)
    assert end.value.code == 1
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1 and lines[0].startswith("minicache: "), lines
    return lines[0]


Captured = pytest.CaptureFixture[str]


def test_a_result_folder_that_is_a_file_is_refused_before_the_model_loads(
    tmp_path: Path, capsys: Captured
):
    (tmp_path / "out").touch()
    words = ["--out", str(tmp_path / "out"), "--model", "nowhere"]
    assert str(tmp_path / "out") in said_by(capsys, "demo", *words)


def test_unknown_models_are_named(tmp_path: Path, capsys: Captured):
    words = ["--model", "smollm3-135m", "--out", str(tmp_path)]
    assert "smollm3-135m" in said_by(capsys, "demo", *words)
    missing = str(tmp_path / "missing")
    assert missing in said_by(capsys, "generate", "hello", "--model", missing)


def test_a_folder_without_a_tokenizer(tiny_llama: Path, capsys: Captured):
    (tiny_llama / "tokenizer.json").unlink()
    said = said_by(capsys, "generate", "hello", "--model", str(tiny_llama))
    assert "tokenizer.json" in said and str(tiny_llama) in said


def test_a_folder_without_weights(tiny_llama: Path, capsys: Captured):
    (tiny_llama / "model.safetensors").unlink()
    assert str(tiny_llama) in said_by(capsys, "generate", "hello", "--model", str(tiny_llama))


def test_a_truncated_gguf(tmp_path: Path, capsys: Captured):
    file = tmp_path / "model.gguf"
    file.write_bytes(b"GGUF" + (3).to_bytes(4, "little") + (2).to_bytes(8, "little"))
    assert "model.gguf" in said_by(capsys, "generate", "hello", "--model", str(file))


def test_generate_streams_text(tiny_llama: Path, capsys: Captured):
    texts: list[str] = []
    for _ in range(2):
        with pytest.raises(SystemExit) as end:
            main(["generate", "the cat", "--model", str(tiny_llama), "--max-tokens", "5"])
        assert end.value.code == 0
        texts.append(capsys.readouterr().out)
    assert texts[0] == texts[1] and texts[0].endswith("\n")


def test_debug_shows_the_traceback():
    done = run("--debug", "models", "path", "no-such-model")
    assert done.returncode != 0 and "Traceback" in done.stderr
    done = run("models", "path", "no-such-model", MINICACHE_DEBUG="1")
    assert done.returncode != 0 and "Traceback" in done.stderr


def test_a_reader_that_goes_away_is_no_failure_to_talk_about():
    shell = f"{sys.executable} -m minicache --help | true"
    done = subprocess.run(["bash", "-c", shell], capture_output=True, text=True, timeout=60)
    assert not done.stderr


def test_sentences_for_every_kind_of_error():
    assert failure.sentence(RequestRefused("Too\nlong.")) == "Too long."
    missing = FileNotFoundError(2, "No such file or directory", "x.json")
    assert failure.sentence(missing) == "x.json: No such file or directory."
    unexpected = failure.sentence(ZeroDivisionError("division by zero"))
    assert "ZeroDivisionError: division by zero" in unexpected and "--debug" in unexpected


def test_demo_end_to_end(tiny_llama: Path, tmp_path: Path):
    words = ["--model", str(tiny_llama), "--out", str(tmp_path), "--json", str(tmp_path / "n.json")]
    done = run("demo", *words, "--max-num-batched-tokens", "64")
    assert done.returncode == 0, done.stderr
    numbers = json.loads((tmp_path / "n.json").read_text())
    assert numbers["before"]["completed"] == numbers["after"]["completed"] == 4
    assert numbers["ratio"]["worst_gap_s"] > 0
    assert "longest silence of a chat" in done.stdout and "\x1b" not in done.stdout
    assert (tmp_path / "timeline.svg").read_text().startswith("<svg")
    assert json.loads((tmp_path / "trace.json").read_text())["traceEvents"]


def test_demo_with_ctrl_c(tiny_llama: Path, tmp_path: Path):
    command = [sys.executable, "-u", "-m", "minicache", "demo", "--model", str(tiny_llama)]
    with subprocess.Popen(
        [*command, "--out", str(tmp_path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout and process.stderr
        for line in process.stdout:
            if "Ada: gets the first token" in line:
                process.send_signal(signal.SIGINT)
                break
        rest, errors = process.stdout.read(), process.stderr.read()
    assert process.returncode == 130 and "Traceback" not in errors
    assert "requests were cancelled, and 512 of 512 KV pages are free again" in rest
