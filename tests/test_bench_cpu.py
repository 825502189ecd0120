"""The comparison with transformers: fair turns, the right ratio, floors by hand, rows for all."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from model_driver import tiny_config
from rich.console import Console

from minicache.bench.cpu.contest import Duel, alternate
from minicache.bench.cpu.floor import Ceilings, decode_floor, prefill_floor
from minicache.bench.cpu.fresh import MB, peak_bytes
from minicache.bench.cpu.workload import mixed_queue, one_prompt
from minicache.model_config import CONFIGS


def test_who_begins_changes_and_the_warm_up_does_not_count():
    calls: list[str] = []
    times = {"a": iter([9.0, 1.0, 2.0, 4.0]), "b": iter([9.0, 3.0, 4.0, 6.0])}

    def run(name: str) -> float:
        calls.append(name)
        return next(times[name])

    duel = alternate(lambda: run("a"), lambda: run("b"), 3)
    assert "".join(calls) == "ab" + "ab" + "ba" + "ab"
    assert duel == Duel([1.0, 2.0, 4.0], [3.0, 4.0, 6.0])
    assert duel.ratio == 2.0  # the median of 3, 2 and 1.5
    assert duel.best == (1.0, 3.0)


def test_the_queue_is_the_same_for_everybody():
    queue = mixed_queue(49_152)
    assert queue == mixed_queue(49_152)
    assert len(queue.prompts) == len(queue.counts) == 24
    for numbers in (queue.counts, [len(prompt) for prompt in queue.prompts]):
        assert 8 <= min(numbers) < 20 and 110 < max(numbers) <= 128
    assert min(one_prompt(500, 100)) >= 32 and max(one_prompt(500, 100)) < 100


def test_decode_reads_each_weight_and_each_stored_token_once():
    machine = Ceilings(bytes_per_second=1e9, flops_per_second=1e9)
    tied = tiny_config("qwen2")
    stored = 10 * tied.kv_bytes_per_token(4)
    want = (tied.num_parameters * 4 + stored) / 1e9
    assert decode_floor(tied, torch.float32, 10, machine) == pytest.approx(want)
    untied = tiny_config("llama")
    table = untied.vocab_size * untied.hidden_size * 4
    want = (untied.num_parameters * 4 - table + stored) / 1e9
    assert decode_floor(untied, torch.float32, 10, machine) == pytest.approx(want)


def test_prefill_is_two_operations_a_weight_and_token():
    # Llama 3.1 8B: 6.98 G weights in the layers; the rest is small at 1,000 tokens.
    machine = Ceilings(bytes_per_second=1.0, flops_per_second=1e12)
    seconds = prefill_floor(CONFIGS["llama-3.1-8b"], 1000, machine)
    assert seconds == pytest.approx(2 * 6.98e9 * 1000 / 1e12, rel=0.03)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from tiny_folder import make_tiny_llama

    return make_tiny_llama(tmp_path_factory.mktemp("bench"))


@pytest.mark.slow
def test_every_row_is_measured_and_shown(folder: Path, tmp_path: Path, capsys):
    from minicache.bench.cpu import main

    code = main(
        ["--model", str(folder), "--dtype", "float32", "--repeats", "1", "--json", f"{tmp_path}/a"]
    )
    document = json.loads((tmp_path / "a").read_text())
    rows = {row["what"].strip(): row for row in document["rows"]}
    assert code == (0 if all(row["good"] for row in rows.values()) else 1)
    steps = rows["of this: fewer steps"]
    assert steps["theirs"] == 312 and 190 < steps["ours"] < 260
    assert steps["value"] == pytest.approx(steps["theirs"] / steps["ours"])
    total = rows["24 prompts, 8 slots"]["value"]
    assert total == pytest.approx(steps["value"] * rows["of this: faster steps"]["value"])
    for name in ("one prompt, decode", "prefill of 2,048 tokens"):
        assert rows[name]["floor"] > 0 and rows[name]["value"] > 0
        assert len(rows[name]["repeats"]["ours"]) == 1
    assert rows["ready after import torch"]["value"] > 0
    assert 0 < rows["peak memory − weights − pool"]["value"] < 2000
    assert rows["batch_invariant: decode"]["value"] > 0
    assert document["versions"]["transformers"] and document["command"].endswith("/a")
    assert "prefill of" in capsys.readouterr().out


def test_a_missed_bar_is_seen():
    from minicache.bench.cpu.measure import Row
    from minicache.bench.cpu.report import tables

    rows = [
        Row("fast enough", "float32", 1.2, "s", 1.0, 1.2, bar=1.0),
        Row("too slow", "float32", 0.8, "s", 1.0, 0.8, bar=1.0),
        Row("too much", "float32", 801.0, "MB", bar=700.0, at_most=True),
        Row("just a number", "float32", 5.0, "s"),
    ]
    assert [row.good for row in rows] == [True, False, False, True]
    console = Console(width=80)
    with console.capture() as capture:
        console.print(*tables(rows, "tiny"))
    text = capture.get()
    assert "≥ 1 ✓" in text and "≥ 1 ✗" in text and "≤ 700 ✗" in text


def test_the_peak_of_a_child_is_its_own():
    """`ru_maxrss` of a child began at what its parent had."""
    ballast = torch.ones(100 * MB // 4)  # 100 MB, resident
    program = "from minicache.bench.cpu.fresh import peak_bytes; print(peak_bytes())"
    child = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert int(child.stdout) < 100 * MB <= peak_bytes()
    assert ballast[-1] == 1
