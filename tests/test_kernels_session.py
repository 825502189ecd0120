"""Runs the kernel tests in Triton's interpreter, in a session that chose it before importing
Triton.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

HERE = Path(__file__).parent
FILES = ["test_kernels_decode.py", "test_kernels_chunk.py", "test_kernels_lone.py"]


@pytest.mark.skipif(torch.cuda.is_available(), reason="the files run compiled here: pytest -m gpu")
@pytest.mark.parametrize("name", FILES)
def test_in_the_interpreter(name):
    pytest.importorskip("triton")
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    for variable in [v for v in environment if v.startswith("PYTEST_")]:
        del environment[variable]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(HERE / name)]
    run = subprocess.run(command, env=environment, capture_output=True, text=True, cwd=HERE.parent)
    assert run.returncode == 0, run.stdout[-4000:] + run.stderr[-2000:]
    passed = re.search(r"(\d+) passed", run.stdout)
    assert passed and int(passed[1]) > 0
