"""The report for each kind of training that strangers have: nothing in it is false, or said of what is not there."""

import html
import json
import re

import pandas as pd
import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from page_data import held
from toposcale.pages.cards import cards
from workspace import new_workspace

pytestmark = [pytest.mark.workflow, pytest.mark.xdist_group("own")]

STEPS = (10, 20, 30, 40)


def _move(parameters, step):
    with torch.no_grad():
        for parameter in parameters:
            parameter += 0.01 * step * torch.randn_like(parameter)


def classifier(folder):
    """An MLP whose loop saves its loss, epoch and optimiser with the weights, and its best weights once more."""
    net = nn.Sequential(nn.Linear(12, 16), nn.ReLU(), nn.Linear(16, 3))
    for epoch in range(1, 13):
        _move(net.parameters(), epoch)
        content = {"epoch": epoch, "step": 100 * epoch, "model_state_dict": net.state_dict()}
        losses = {"loss": 3 / epoch, "val_loss": 3.2 / epoch}
        torch.save(content | losses, folder / f"checkpoint_epoch_{epoch}.pt")
    torch.save(content, folder / "best.pt")


class CharGPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.tok, self.key, self.lm_head = nn.Embedding(20, 16), nn.Linear(16, 16), nn.Linear(16, 20)
        self.register_buffer("tril", torch.tril(torch.ones(24, 24)))


def char_gpt(folder):
    """A hand-written GPT with its causal mask, and a log of its losses."""
    net = CharGPT()
    for step in STEPS:
        _move(net.parameters(), step)
        torch.save(net.state_dict(), folder / f"step{step}.pt")
    rows = "".join(f"{step},{4 - step / 20},{0.001 * (1 - step / 80)}\n" for step in range(2, 41))
    (folder / "log.csv").write_text(f"step,loss,lr\n{rows}")


def lstm(folder):
    net = nn.LSTM(6, 8, num_layers=2)
    for step in STEPS:
        _move(net.parameters(), step)
        torch.save({"state_dict": net.state_dict(), "iteration": step}, folder / f"lstm.{step}.pth")


def lora(folder):
    """Adapters as PEFT saves them, with the states of the Trainer."""
    for step in STEPS:
        checkpoint = folder / f"checkpoint-{step}"
        checkpoint.mkdir()
        name = "base_model.model.h.{}.c_attn.lora_{}.weight"
        shapes = {"A": (4, 16), "B": (48, 4)}
        weights = {
            name.format(i, m): torch.randn(shapes[m]) * (1 if m == "A" else step / 100) for i in (0, 1) for m in "AB"
        }
        save_file(weights, checkpoint / "adapter_model.safetensors")
        config = {
            "peft_type": "LORA",
            "task_type": "CAUSAL_LM",
            "base_model_name_or_path": "gpt2",
            "r": 4,
            "lora_alpha": 8,
        }
        (checkpoint / "adapter_config.json").write_text(json.dumps(config))
        log = [{"step": s, "loss": 3.5 - s / 100, "learning_rate": 5e-5 * (1 - s / 40)} for s in range(5, step + 1, 5)]
        state = {"global_step": step, "max_steps": STEPS[-1], "log_history": log}
        (checkpoint / "trainer_state.json").write_text(json.dumps(state))


def pinn(folder):
    """A network for a differential equation: one output unit, a loss far below 1."""
    net = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 1))
    for step in STEPS:
        _move(net.parameters(), step)
        torch.save({"model": net.state_dict(), "loss": 1e-3 / step}, folder / f"pinn_{step:06d}.pt")


def lightning(folder):
    net = nn.Linear(8, 8)
    for epoch, step in enumerate(STEPS):
        _move(net.parameters(), step)
        state = {f"model.{name}": tensor for name, tensor in net.state_dict().items()}
        monitored = {"ModelCheckpoint{}": {"monitor": "val_loss", "current_score": torch.tensor(1 / step)}}
        content = {"epoch": epoch, "global_step": step, "state_dict": state, "callbacks": monitored}
        torch.save(content, folder / f"epoch={epoch}-step={step}.ckpt")
    torch.save(content, folder / "last.ckpt")


def graph_network(folder):
    """An attention vector of one row, a head of one unit, another metric next to the losses; epochs in the names."""
    shapes = {
        "conv1.lin.weight": (16, 5),
        "conv1.att_src": (1, 4, 4),
        "conv2.lin.weight": (16, 16),
        "head.weight": (1, 16),
    }
    net = {name: nn.Parameter(torch.randn(*shape)) for name, shape in shapes.items()}
    for epoch in range(1, 13):
        _move(net.values(), 1)
        content = {"epoch": epoch, "model_state_dict": dict(net), "train_loss": 1 / epoch, "val_mae": 0.5 / epoch}
        torch.save(content, folder / f"gnn_epoch_{epoch}.pt")


def policy(folder):
    """An actor and a critic of reinforcement learning, with a reward and no loss."""
    parts = {"actor": nn.Linear(4, 16), "critic": nn.Linear(4, 1)}
    for step in STEPS:
        for net in parts.values():
            _move(net.parameters(), 1)
        weights = {f"{part}.{name}": value for part, net in parts.items() for name, value in net.state_dict().items()}
        torch.save({"policy_state": weights, "mean_reward": 20.0 * step}, folder / f"ppo_{step}.pt")


def state_space(folder):
    """Mamba-like blocks with tied embeddings, a moving average next to them, and a log in JSON lines."""
    shapes = {"embedding.weight": (40, 16), "layers.0.A_log": (32, 4), "layers.0.conv1d.weight": (32, 1, 4)}
    net = {name: nn.Parameter(torch.randn(*shape)) for name, shape in shapes.items()}
    for step in STEPS:
        _move(net.values(), 1)
        weights = {name: value.detach() for name, value in net.items()}
        tied = weights | {"lm_head.weight": weights["embedding.weight"].clone()}
        torch.save({"model": tied, "ema": weights, "step": step}, folder / f"ckpt_{step:06d}.pt")
    rows = [{"step": step, "train/loss": 4 - step / 20, "lr": 1e-3 * min(1, step / 5)} for step in range(1, 41)]
    (folder / "metrics.jsonl").write_text("\n".join(map(json.dumps, rows)))


def flow(folder):
    """A density model whose loss, a negative log-likelihood of what is continuous, falls below 0."""
    net = nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Linear(32, 12))
    for step in STEPS:
        _move(net.parameters(), step)
        torch.save(net.state_dict(), folder / f"flow_step{step}.pt")
    (folder / "nll.csv").write_text("step,loss\n" + "".join(f"{step},{2 - step / 10}\n" for step in range(2, 41)))


def folder_of_one(folder):
    save_file({"fc.weight": torch.randn(8, 6)}, folder / "model-500.safetensors")


def two_trainings(folder):
    """A longer training of another architecture took the place of part of a shorter one."""
    for every, last, width in ((2, 10, 4), (5, 30, 6)):
        for step in range(every, last + 1, every):
            torch.save({"w": torch.randn(width, 4), "step": step}, folder / f"model_step_{step}.pt")


KINDS = {
    "mlp": (classifier, {}),
    "gpt": (char_gpt, {"losses": "gpt/log.csv", "tokens_per_step": 64}),
    "rnn": (lstm, {}),
    "adapter": (lora, {}),
    "equation": (pinn, {}),
    "with-lightning": (lightning, {}),
    "one": (folder_of_one, {}),
    "flow": (flow, {"losses": "flow/nll.csv"}),
    "graph": (graph_network, {}),
    "policy": (policy, {}),
    "mamba": (state_space, {"losses": "mamba/metrics.jsonl"}),
}


@pytest.fixture(scope="module")
def workspace(tmp_path_factory):
    """A run on a folder of each kind, as far as the cards need it."""
    torch.manual_seed(0)
    made = new_workspace(tmp_path_factory.mktemp("kinds") / "work")
    for name, (make, _) in KINDS.items():
        (made.path / name).mkdir()
        make(made.path / name)
    models = {name: {"kind": "folder", "path": name, **keys} for name, (_, keys) in KINDS.items()}
    made.config = {"run": "small", "models": models}
    made.snakemake(*(f"results/small/tables/{table}.parquet" for table in ("warnings", "advice")))
    return made


@pytest.fixture(scope="module")
def screen(workspace):
    """The lines of each card."""
    names = ("models", "metrics", "features", "warnings", "advice")
    tables = [pd.read_parquet(workspace.results / "tables" / f"{name}.parquet") for name in names]
    return {card.model: dict(card.lines) for card in cards(*tables)}


def test_every_kind_has_its_checkpoints_and_its_loss(screen):
    assert {name: (lines["Checkpoints"], lines["Loss"].partition(";")[0]) for name, lines in screen.items()} == {
        "mlp": ("12, steps 100 to 1,200", "validation loss 0.2667 at step 1,200"),
        "gpt": ("4, steps 10 to 40", "training loss 2 at step 40"),
        "rnn": ("4, steps 10 to 40", "none is known"),
        "adapter": ("4, steps 10 to 40 of 40", "training loss 3.1 at step 40"),
        "equation": ("4, steps 10 to 40", "training loss 2.5e-05 at step 40"),
        "with-lightning": ("4, steps 10 to 40", "validation loss 0.025 at step 40"),
        "flow": ("4, steps 10 to 40", "training loss -2 at step 40"),
        "one": ("1, step 500", "none is known"),
        "graph": ("12, steps 1 to 12", "training loss 0.08333 at step 12"),
        "policy": ("4, steps 10 to 40", "none is known"),
        "mamba": ("4, steps 10 to 40", "training loss 2 at step 40"),
    }


def test_only_a_language_model_has_a_forecast_or_an_advice(screen):
    for name, lines in screen.items():
        is_language_model = name in ("gpt", "adapter")
        assert ("Advice" in lines) is is_language_model, name
        has_loss = not lines["Loss"].startswith("none")
        assert ("no forecast" in lines.get("Forecast", "")) is (has_loss and not is_language_model), name


def test_a_training_is_called_finished_only_where_its_end_is_known(screen):
    assert screen["adapter"]["Advice"] == "the run is finished"
    assert "final_step in its entry" in screen["gpt"]["Advice"]


def test_what_lies_beside_the_checkpoints_is_said(screen):
    assert "best.pt: no step in the name" in screen["mlp"]["Left out"]
    assert "last.ckpt: no step in the name" in screen["with-lightning"]["Left out"]
    assert "not measured: 1 tensor" in screen["gpt"]["Left out"]
    assert "tril" in screen["gpt"]["Left out"]
    assert "under ema" in screen["mamba"]["Left out"]
    assert "copies: lm_head.weight" in screen["mamba"]["Left out"]
    with_embeddings = {name for name, lines in screen.items() if "config.json" in lines.get("Left out", "")}
    assert with_embeddings == {"gpt", "adapter"}  # of others nobody expects them
    said = "no 10 features (too small): 4.weight; no ESD exponent α (too small): 0.weight"
    assert screen["equation"]["Left out"] == said
    assert not any(lines.get("Changed most", "").endswith("x 1") for lines in screen.values())
    assert "the steps: as saved in the checkpoints" in screen["mlp"]["Notes"]
    assert "which are epochs" in screen["graph"]["Notes"]


def test_what_is_ordinary_is_no_warning(workspace, screen):
    warnings = pd.read_parquet(workspace.results / "tables/warnings.parquet")
    assert not warnings["remedy"].str.contains("diverged").any()
    assert not warnings["warning"].str.contains("embeddings").any()
    assert warnings["remedy"].eq("").all()
    assert not any("Warnings" in lines for lines in screen.values())


def text_of(page):
    """What the owner reads: the text of the page without its drawings, with every row of its tables."""
    packed = " ".join(json.loads(held(page, name)) for name in re.findall(r'id="(data-rows-\w+)"', page))
    plain = re.sub(r"<(script|style|svg)\b.*?</\1>", " ", page, flags=re.DOTALL).partition("The configuration, with")[0]
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", f"{plain} {packed}")).split())


# What a page of a kind must say; and what it must not, which would be false or of no use to the owner.
SAYS = {
    "mlp": ["12 checkpoints", "The layers that changed most", "Which features follow the validation loss?"],
    "mamba": ["training loss 2 at step 40", "under ema", "Which features follow the training loss?"],
    "adapter": [
        "1 language model",
        "the product of its factors",
        "No topology of the whole model was measured",
        "lora_BA",
    ],
    "gpt": ["1 language model", "masks: tril", "final_step in its entry", "Forecasts and decisions"],
    "graph": ["training loss 0.08333", "which are epochs", "features (too small): head.weight"],
    "flow": ["training loss -2 at step 40", "Which features follow the training loss?"],
    "one": ["1 checkpoint.", "At the only checkpoint; the largest norms come first."],
    "policy": ["none is known; name a file of losses"],
    "rnn": ["none is known; name a file of losses", "weight_ih_l1 and 1 more", "The layers that changed most"],
    "equation": ["training loss 2.5e-05 at step 40", "no forecast: it is not known to be a language model"],
    "with-lightning": ["validation loss 0.025 at step 40", "last.ckpt: no step in the name"],
}
NOT_OF_ONE_MODEL = (
    *("The buttons show and hide models", "Which forecast of the final loss", "in every configuration"),
    *("needs 3 sizes", "this law needs at least", "Correlations over runs", "over the models", "mean over models"),
)
NOT_OF_ONES_OWN = (
    *("Left out for lack of data", "published", "Claims", "There is nothing to list", "could not have shown it"),
    *("Could not be tested", "Does the shape of the weights tell more", "it may have diverged", "What was left out"),
)
WITHOUT_A_LOSS = ("Which features follow", "positive control", "Positive control", "Rank correlation: how")
SAYS_NOT = {
    "mlp": ["language model of", "config.json"],
    "mamba": ["language model of", "config.json", "follow the validation loss"],
    "adapter": ["validation loss 3", "ripser"],
    "gpt": ["follow the validation loss", "powerlaw_alpha ("],
    "graph": ["language model of", "config.json", "follow the validation loss", "scaled, H", "x 1;", "x 1 "],
    "flow": ["language model of", "config.json", "nan"],
    "one": [*WITHOUT_A_LOSS, "The layers that changed most", "nats", "config.json", "Figures"],
    "policy": [*WITHOUT_A_LOSS, "nats", "config.json", "Loss over training"],
    "rnn": [*WITHOUT_A_LOSS, "language model of", "nats", "config.json", "Loss over training"],
    "equation": ["language model of", "config.json", "follow the validation loss"],
    "with-lightning": ["language model of", "config.json", "follow the training loss"],
}


@pytest.mark.parametrize("kind", SAYS)
def test_the_page_of_one_kind_says_what_its_owner_needs_and_nothing_false(kind, tmp_path):
    torch.manual_seed(0)
    make, keys = KINDS[kind]
    own = new_workspace(tmp_path / "work")
    (own.path / kind).mkdir()
    make(own.path / kind)
    own.config = {
        "run": "small",
        "models": {kind: {"kind": "folder", "path": kind, **keys}},
        "statistics": {"resamples": 50},
    }
    own.snakemake("results/small/report.html")
    text = text_of((own.results / "report.html").read_text())
    assert f"Run “small”: 1 model 1 {'language model' if kind in ('adapter', 'gpt') else 'model'} of" in text
    for said in SAYS[kind]:
        assert said in text, said
    for wrong in (*NOT_OF_ONE_MODEL, *NOT_OF_ONES_OWN, *SAYS_NOT[kind]):
        assert wrong not in text, wrong
    assert text.count("There are no warnings.") == 1


def test_two_trainings_in_one_folder_end_in_a_line_with_the_steps_of_each(tmp_path):
    own = new_workspace(tmp_path / "work")
    (own.path / "two").mkdir()
    two_trainings(own.path / "two")
    own.config = {"run": "small", "models": {"mine": {"kind": "folder", "path": "two"}}}
    last = own.snakemake("--dry-run", check=False).stderr.splitlines()[-1]
    assert last.startswith("toposcale: two: its checkpoints are of 2 trainings")
    assert last.endswith("steps: [5, 10, 15, 20, 25, 30] or steps: [2, 4, 6, 8]")
