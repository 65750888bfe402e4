"""The monitor under the oldest transformers that it works with; the newest one is installed for all other tests."""

import os
import subprocess
import sys

import pytest

from paths import ROOT
from toposcale.io import schemas, tables
from toposcale.monitor.folder import Folder

# transformers, and releases of its time of what it checks the version of.
OLDEST = ("transformers==4.40.2", "tokenizers==0.19.1", "huggingface_hub==0.23.5", "accelerate==0.30.1")

TRAINING = """
import torch, transformers
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments
from toposcale.monitor import TopologyCallback

assert transformers.__version__ == "4.40.2"
sizes = {"vocab_size": 16, "n_positions": 8, "n_embd": 8, "n_layer": 1, "n_head": 2}
model = GPT2LMHeadModel(GPT2Config(**sizes, bos_token_id=0, eos_token_id=0))
texts = (torch.arange(8) + torch.arange(64)[:, None]) % 16
data = [{"input_ids": text, "labels": text} for text in texts]
arguments = TrainingArguments(
    "trainer", max_steps=12, logging_steps=1, save_strategy="no", report_to=[], disable_tqdm=True, use_cpu=True
)
callback = TopologyCallback("topology", "old", every=6, when_busy="wait", tensorboard=False)
Trainer(model, arguments, train_dataset=data, callbacks=[callback]).train()
"""


def test_a_trainer_of_the_oldest_transformers_is_followed(tmp_path):
    site = tmp_path / "site"
    install = ("-m", "pip", "install", "--quiet", "--no-deps", "--no-compile", "--target", site, *OLDEST)
    done = subprocess.run([sys.executable, *install], capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"no package index to install from: {done.stderr.strip().splitlines()[-1]}")
    paths = os.pathsep.join([str(site), str(ROOT / "src")])
    done = subprocess.run(
        [sys.executable, "-c", TRAINING],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": paths},
        capture_output=True,
        text=True,
        check=False,
        timeout=500,
    )
    assert done.returncode == 0, done.stderr
    folder = Folder(tmp_path / "topology", "old")
    assert folder.steps() == [0, 6, 12]
    log = tables.gather(schemas.TABLES["training"], folder.files("training").values()).to_pandas()
    assert log["step"].max() == 12
    assert log["loss"].notna().sum() == 12
