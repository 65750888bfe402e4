"""The monitor inside Lightning: a real fit of two epochs on the CPU."""

import pydoc
from contextlib import nullcontext

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("lightning.pytorch")
import lightning.pytorch as lightning  # noqa: E402
from torch import nn  # noqa: E402
from torch.utils.data import DataLoader, TensorDataset  # noqa: E402

from toposcale import monitor  # noqa: E402
from toposcale.features import weights  # noqa: E402
from toposcale.io import schemas, tables  # noqa: E402
from toposcale.monitor import LightningTopologyCallback  # noqa: E402
from toposcale.monitor.folder import Folder  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")

EPOCHS, BATCHES, WARMUP = 2, 12, 4
STEPS = EPOCHS * BATCHES


class Regression(lightning.LightningModule):
    """Two layers; keeps the losses, rates and last weights that the callback should have seen."""

    def __init__(self, interval="step"):
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(4, 12), nn.Tanh(), nn.Linear(12, 1))
        self.interval, self.losses, self.validated = interval, [], {}

    def training_step(self, batch, index):
        inputs, targets = batch
        loss = nn.functional.mse_loss(self.inner(inputs), targets)
        self.losses.append(loss.item())
        return loss

    def validation_step(self, batch, index):
        loss = nn.functional.mse_loss(self.inner(batch[0]), batch[1])
        self.log_dict({"val_loss": loss, "val_accuracy": 0.5})
        if not self.trainer.sanity_checking:
            self.validated[self.trainer.global_step] = loss.item()

    def rate(self, step):
        return min(1.0, (step + 1) / WARMUP) * (1 - step / (2 * STEPS))

    def configure_optimizers(self):
        optimizer = torch.optim.SGD(self.parameters(), lr=0.1)
        scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, self.rate)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": self.interval}}


def fit(path, *, every=6, module=None, resume_from=None, epochs=EPOCHS, more=(), callback=None, **options):
    """A fit with the callback, its further options, and more callbacks: the module and its trainer."""
    lightning.seed_everything(0, verbose=False)
    inputs = torch.randn(8 * BATCHES, 4)
    data = TensorDataset(inputs, inputs.sum(1, keepdim=True))
    module = module or Regression()
    monitored = LightningTopologyCallback(
        path / "topology",
        "mine",
        every=every,
        when_busy="wait",
        tensorboard=False,
        settings=weights.WeightSettings(max_points=8),
        tokens_per_step=64,
        **(callback or {}),
    )
    trainer = lightning.Trainer(
        max_epochs=epochs,
        accelerator="cpu",
        callbacks=[monitored, *more],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=path,
        **options,
    )
    trainer.fit(module, DataLoader(data, 8), DataLoader(data, 8 * BATCHES), ckpt_path=resume_from)
    return module, trainer


def rows(path, kind, table):
    folder = Folder(path / "topology", "mine")
    return tables.gather(schemas.TABLES[table], folder.files(kind).values()).to_pandas()


def test_a_fit_of_two_epochs(tmp_path):
    module, _ = fit(tmp_path, val_check_interval=6)
    folder = Folder(tmp_path / "topology", "mine")
    assert folder.steps() == list(range(0, STEPS + 1, 6))
    log = rows(tmp_path, "training", "training")
    assert log["step"].tolist() == list(range(1, STEPS + 1))
    np.testing.assert_allclose(log["loss"], module.losses, rtol=1e-6)
    np.testing.assert_allclose(log["learning_rate"], [0.1 * module.rate(step) for step in log["step"]])
    metrics = rows(tmp_path, "metrics/monitor", "metrics").set_index(["metric", "step"])["value"]
    assert metrics["validation_loss"].to_dict() == pytest.approx(module.validated)
    assert set(module.validated) == {6, 12, 18, 24}
    assert set(metrics["accuracy"]) == {0.5}
    features = rows(tmp_path, "features/weights", "features").query("feature == 'frobenius_norm'")
    last = features.set_index(["step", "layer"])["value"][STEPS]
    expected = {name: value.norm().item() for name, value in module.named_parameters() if name.endswith("weight")}
    assert {name: last[name] for name in expected} == pytest.approx(expected, rel=1e-6)
    facts = folder.facts()
    assert (facts["final_step"], facts["tokens_per_step"], facts["optimizer"]) == (STEPS, 64, "sgd")
    assert facts["n_parameters"] == sum(value.numel() for value in module.parameters())
    plan = np.interp(np.arange(STEPS + 1), facts["schedule"]["at"], facts["schedule"]["values"])
    np.testing.assert_allclose(plan, [0.1 * module.rate(step) for step in range(STEPS + 1)], rtol=1e-9)


def test_a_step_of_several_batches_counts_once(tmp_path):
    module, trainer = fit(tmp_path, every=3, accumulate_grad_batches=2, limit_val_batches=0)
    assert trainer.global_step == STEPS // 2
    log = rows(tmp_path, "training", "training")
    assert log["step"].tolist() == list(range(1, STEPS // 2 + 1))
    np.testing.assert_allclose(log["loss"], np.mean(np.reshape(module.losses, (-1, 2)), axis=1), rtol=1e-6)
    assert Folder(tmp_path / "topology", "mine").steps() == [0, 3, 6, 9, 12]


def test_the_mean_of_losses_in_bfloat16_keeps_their_digits(tmp_path):
    class Constant(Regression):
        def training_step(self, batch, index):
            return super().training_step(batch, index) * 0 + 2.40625

    fit(tmp_path, module=Constant(), precision="bf16-true", accumulate_grad_batches=BATCHES, limit_val_batches=0)
    # Lightning rounds the loss of a batch once; a sum of twelve would be rounded twelve times.
    np.testing.assert_allclose(rows(tmp_path, "training", "training")["loss"], 2.40625, rtol=2**-8)


class TwoOptimizers(Regression):
    """Manual optimization: every `batches` batches each of the two layers has an update of its own optimizer."""

    automatic_optimization = False

    def __init__(self, batches=1):
        super().__init__()
        self.batches = batches

    def training_step(self, batch, index):
        loss = super().training_step(batch, index)
        self.manual_backward(loss)
        if (index + 1) % self.batches == 0:
            for optimizer in self.optimizers():
                optimizer.step()
                optimizer.zero_grad()
        return loss

    def configure_optimizers(self):
        return [torch.optim.SGD(layer.parameters(), lr=0.05) for layer in (self.inner[0], self.inner[2])]


@pytest.mark.parametrize("batches", [1, 3])
def test_lightning_counts_updates_of_several_optimizers(tmp_path, batches):
    module, trainer = fit(tmp_path, module=TwoOptimizers(batches), every=3, limit_val_batches=0)
    steps = list(range(2, 2 * STEPS // batches + 1, 2))
    assert trainer.global_step == steps[-1]
    log = rows(tmp_path, "training", "training")
    assert log["step"].tolist() == steps
    np.testing.assert_allclose(log["loss"], np.mean(np.reshape(module.losses, (-1, batches)), axis=1), rtol=1e-6)
    folder = Folder(tmp_path / "topology", "mine")
    # A multiple of 3, or the first step after one that falls between two updates.
    assert folder.steps() == [0, *(step for step in steps if step % 3 < 2)]
    # How many updates a batch has is the module's own.
    assert folder.facts()["final_step"] is None


def test_lightning_last_step_of_several_optimizers(tmp_path):
    fit(tmp_path, module=TwoOptimizers(), epochs=None, max_steps=8, limit_val_batches=0)
    folder = Folder(tmp_path / "topology", "mine")
    assert (folder.steps()[-1], folder.facts()["final_step"]) == (8, 8)


def test_lightning_last_step_of_changing_batches(tmp_path):
    changes = lightning.callbacks.GradientAccumulationScheduler({0: 1, 1: 4})
    _, trainer = fit(tmp_path, more=[changes], limit_val_batches=0)
    assert trainer.global_step == BATCHES + BATCHES // 4
    assert Folder(tmp_path / "topology", "mine").facts()["final_step"] is None


def test_a_value_that_an_evaluation_does_not_log_is_not_repeated(tmp_path):
    class Rarely(Regression):
        def validation_step(self, batch, index):
            super().validation_step(batch, index)
            if self.trainer.global_step == BATCHES // 2:
                self.log("val_rare", 0.25)

    fit(tmp_path, module=Rarely(), val_check_interval=BATCHES // 2)
    metrics = rows(tmp_path, "metrics/monitor", "metrics").set_index(["metric", "step"])["value"]
    assert metrics["rare"].to_dict() == {BATCHES // 2: 0.25}
    assert list(metrics["accuracy"]) == [0.5] * 4


def test_lightning_fit_that_continues_an_unknown_training(tmp_path):
    module, _ = fit(tmp_path, epochs=1, callback={"start": 30}, val_check_interval=6)
    log = rows(tmp_path, "training", "training")
    assert log["step"].tolist() == list(range(31, 31 + BATCHES))
    np.testing.assert_allclose(log["loss"], module.losses, rtol=1e-6)
    metrics = rows(tmp_path, "metrics/monitor", "metrics")
    assert set(metrics.query("metric == 'validation_loss'")["step"]) == {36, 42}
    facts = Folder(tmp_path / "topology", "mine").facts()
    # Those of Lightning count from the start of this fit.
    assert (facts["final_step"], facts["schedule"]) == (None, None)


def test_lightning_schedule_reaches_the_stated_last_step(tmp_path):
    module, _ = fit(tmp_path, epochs=1, callback={"final_step": STEPS}, limit_val_batches=0)
    facts = Folder(tmp_path / "topology", "mine").facts()
    assert (facts["final_step"], facts["schedule"]["at"][-1]) == (STEPS, STEPS)
    assert facts["schedule"]["values"][-1] == pytest.approx(0.1 * module.rate(STEPS))


def test_a_schedule_of_every_second_step_is_no_plan_of_steps(tmp_path):
    class EverySecond(Regression):
        def configure_optimizers(self):
            made = super().configure_optimizers()
            made["lr_scheduler"]["frequency"] = 2
            return made

    fit(tmp_path, every=24, module=EverySecond(), limit_val_batches=0)
    assert Folder(tmp_path / "topology", "mine").facts()["schedule"] is None


def test_a_schedule_by_epochs_is_no_plan_of_steps(tmp_path):
    fit(tmp_path, every=24, module=Regression("epoch"), limit_val_batches=0)
    assert Folder(tmp_path / "topology", "mine").facts()["schedule"] is None


def test_lightning_scheduler_of_an_unknown_form(tmp_path, monkeypatch, capsys):
    class WithoutInterval:
        """Configuration of a scheduler, whose interval only the callback asks for."""

        def __getattr__(self, name):
            raise AttributeError(f"no attribute {name!r}")

    start = LightningTopologyCallback.on_train_start

    def asked_by_the_callback(callback, trainer, module):
        with monkeypatch.context() as patched:
            patched.setattr(lightning.Trainer, "lr_scheduler_configs", property(lambda _: [WithoutInterval()]))
            start(callback, trainer, module)

    monkeypatch.setattr(LightningTopologyCallback, "on_train_start", asked_by_the_callback)
    module, trainer = fit(tmp_path)
    assert trainer.global_step == STEPS == len(module.losses)
    assert "no attribute 'interval'; nothing is monitored from here on" in capsys.readouterr().err


def test_a_fit_that_goes_on_takes_up_its_rows(tmp_path):
    _, trainer = fit(tmp_path, epochs=1, limit_val_batches=0)
    trainer.save_checkpoint(tmp_path / "half.ckpt")
    fit(tmp_path, resume_from=tmp_path / "half.ckpt", limit_val_batches=0)
    assert Folder(tmp_path / "topology", "mine").steps() == list(range(0, STEPS + 1, 6))
    assert rows(tmp_path, "training", "training")["step"].tolist() == list(range(1, STEPS + 1))


def test_the_help_of_the_package_has_its_classes():
    pytest.importorskip("transformers")
    text = pydoc.plain(pydoc.render_doc(monitor))
    for name in ("TopologyMonitor", "TopologyCallback", "LightningTopologyCallback"):
        assert f"class {name}(" in text


def test_a_fit_after_an_interrupted_one_opens_the_monitor_again(tmp_path):
    class Interrupted(Regression):
        def on_train_batch_start(self, batch, index):
            if self.trainer.global_step == 3:
                raise RuntimeError("as if interrupted")

    data = DataLoader(TensorDataset(torch.ones(8 * BATCHES, 4), torch.ones(8 * BATCHES, 1)), 8)
    callback = LightningTopologyCallback(tmp_path, "mine", every=2, when_busy="wait", tensorboard=False, overwrite=True)
    for module in (Interrupted(), Regression()):
        trainer = lightning.Trainer(
            max_steps=4,
            accelerator="cpu",
            callbacks=[callback],
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
        )
        with nullcontext() if type(module) is Regression else pytest.raises(RuntimeError, match="interrupted"):
            trainer.fit(module, data)
    assert Folder(tmp_path, "mine").steps() == [0, 2, 4]


def test_lightning_fit_that_fails_keeps_its_rows(tmp_path):
    class Failing(Regression):
        def on_train_batch_start(self, batch, index):
            if self.trainer.global_step == 8:
                raise RuntimeError("as if out of memory")

    with pytest.raises(RuntimeError, match="out of memory"):
        fit(tmp_path, module=Failing(), limit_val_batches=0)
    assert rows(tmp_path, "training", "training")["step"].tolist() == list(range(1, 9))
    fit(tmp_path, callback={"overwrite": True}, limit_val_batches=0)
    assert Folder(tmp_path / "topology", "mine").steps() == list(range(0, STEPS + 1, 6))
