"""Training: exact schedule and optimiser, draws without history, bit-identical resumption, clean stops."""

import io
import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from toposcale.io import tensor_files
from toposcale.io.errors import UserError
from toposcale.training.callbacks import ProgressLog, WeightSketch
from toposcale.training.gpt import GPTShape
from toposcale.training.trainer import (
    NonFiniteLossError,
    TrainingSettings,
    TrainingState,
    configure_torch,
    draw_batch,
    initial_state,
    load_state,
    load_weights,
    loss_and_gradient,
    save_optimiser,
    save_weights,
    train,
    validation_loss,
    validation_sequences,
)

SHAPE = GPTShape(vocab_size=17, context=12, d_model=8, n_layers=2, n_heads=2)
SETTINGS = TrainingSettings(steps=12, batch_size=5, warmup_steps=3, seed=7)
# A text with something to learn: each token follows from the one before, with some noise.
TOKENS = ((np.arange(3000) * 5 + np.random.default_rng(0).integers(0, 3, 3000)) % 17).astype(np.uint16)
CPU = configure_torch("cpu")


def fresh(settings: TrainingSettings = SETTINGS) -> TrainingState:
    return initial_state("tiny", SHAPE, settings, CPU)


def test_training_settings_schedule_at_its_corners():
    settings = TrainingSettings()
    peak = 3e-3
    assert settings.rates.rate(0) == pytest.approx(peak / 200, rel=1e-15)
    assert settings.rates.rate(99) == pytest.approx(peak / 2, rel=1e-15)
    assert settings.rates.rate(199) == peak
    assert settings.rates.rate(200) == peak
    # A quarter, half and three quarters of the way down: (1 + cos(pi t)) / 2.
    assert settings.rates.rate(1400) == pytest.approx(peak * (1 + math.sqrt(0.5)) / 2, rel=1e-12)
    assert settings.rates.rate(2600) == pytest.approx(peak / 2, rel=1e-12)
    assert settings.rates.rate(3800) == pytest.approx(peak * (1 - math.sqrt(0.5)) / 2, rel=1e-12)
    assert 0 < settings.rates.rate(4999) < 1e-9
    assert settings.rates.rate(5000) == 0


@settings(max_examples=50)
@given(st.integers(1, 300), st.integers(0, 300))
def test_training_settings_rates_rise_then_fall(steps, warmup):
    settings = TrainingSettings(steps=steps, warmup_steps=warmup)
    rates = [settings.rates.rate(step) for step in range(steps + 1)]
    assert all(0 < rate <= settings.learning_rate for rate in rates[:-1])
    assert rates[-1] == 0
    top = min(warmup, steps)
    assert rates[:top] == sorted(rates[:top])
    assert rates[top:] == sorted(rates[top:], reverse=True)


def test_draw_batch_draws_depend_on_seed_and_step_only():
    first = draw_batch(TOKENS, 12, 5, SETTINGS)
    for step in (0, 9, 4):
        draw_batch(TOKENS, 12, step, SETTINGS)
    np.random.default_rng(1).random(100)
    np.testing.assert_array_equal(draw_batch(TOKENS, 12, 5, SETTINGS), first)
    assert first.shape == (5, 13)
    assert not np.array_equal(draw_batch(TOKENS, 12, 6, SETTINGS), first)
    assert not np.array_equal(draw_batch(TOKENS, 12, 5, TrainingSettings(batch_size=5, seed=8)), first)


def test_draw_batch_draws_every_sequence_of_the_text():
    text = np.arange(10, dtype=np.uint16)
    starts = np.concatenate([draw_batch(text, 4, step, SETTINGS)[:, 0] for step in range(100)])
    assert set(starts) == set(range(6))
    sequences = draw_batch(text, 4, 0, SETTINGS)
    np.testing.assert_array_equal(sequences - sequences[:, :1], np.tile(np.arange(5), (5, 1)))
    with pytest.raises(ValueError, match="tokens: 4, but a sequence takes 5"):
        draw_batch(text[:4], 4, 0, SETTINGS)


def test_train_training_is_adamw_with_clipping_as_pytorch_does():
    settings = TrainingSettings(steps=12, batch_size=5, warmup_steps=3, seed=7, clip=0.5, weight_decay=0.1)
    state, rows = train(fresh(settings), settings, TOKENS, 12)
    model = fresh(settings).model
    optimiser = torch.optim.AdamW(model.parameters(), lr=1.0, weight_decay=settings.weight_decay)
    for step in range(12):
        sequences = torch.from_numpy(draw_batch(TOKENS, 12, step, settings))
        loss = model.loss(sequences[:, :-1], sequences[:, 1:])
        optimiser.zero_grad()
        loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), settings.clip)
        optimiser.param_groups[0]["lr"] = settings.rates.rate(step)
        optimiser.step()
        # float32 with a different order of sums: rounding of 6e-8 that a dozen steps may amplify.
        assert rows[step]["loss"] == pytest.approx(loss.item(), rel=1e-5)
        assert rows[step]["gradient_norm"] == pytest.approx(norm.item(), rel=1e-4)
    for ours, theirs in zip(state.model.parameters(), model.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=2e-5)
    assert any(row["gradient_norm"] > settings.clip for row in rows), "clipping was not put to the test"


def test_train_rows_describe_the_weights_at_their_step():
    _, rows = train(fresh(), SETTINGS, TOKENS, 12)
    assert [row["step"] for row in rows] == list(range(13))
    assert [row["learning_rate"] for row in rows] == [SETTINGS.rates.rate(step) for step in range(13)]
    state, _ = train(fresh(), SETTINGS, TOKENS, 4)
    loss, gradient = loss_and_gradient(state.model, torch.from_numpy(draw_batch(TOKENS, 12, 4, SETTINGS)))
    assert rows[4]["loss"] == pytest.approx(loss.item(), rel=1e-6)
    assert rows[4]["gradient_norm"] == pytest.approx(gradient.norm().item(), rel=1e-5)


def test_train_it_learns_what_can_be_learned():
    settings = TrainingSettings(steps=250, batch_size=16, warmup_steps=10, learning_rate=1e-2)
    tokens = (np.arange(3000) * 5 % 17).astype(np.uint16)
    state = fresh(settings)
    sequences = validation_sequences(tokens, 12, 32)
    # Untrained: as good as guessing among 17. Each token follows from the one before: the floor is 0.
    assert validation_loss(state.model, sequences) == pytest.approx(math.log(17), rel=0.01)
    train(state, settings, tokens, 250)
    assert validation_loss(state.model, sequences) < 0.1


def save(folder: Path, state: TrainingState) -> tuple[Path, Path]:
    paths = folder / f"step-{state.step}.safetensors", folder / f"step-{state.step}.state"
    save_weights(paths[0], state, {"seed": "7", "config": "abc"})
    save_optimiser(paths[1], state, {"seed": "7", "config": "abc"})
    return paths


@pytest.mark.parametrize("cuts", [[1], [3, 4], [5, 11], [12], [0, 6], list(range(13))])
def test_weight_sketch_training_in_pieces_is_bit_identical(tmp_path, cuts):
    def sketch() -> WeightSketch:
        return WeightSketch(SHAPE.n_parameters, size=3, every=2, seed=7)

    whole, whole_sketch = fresh(), sketch()
    whole, rows = train(whole, SETTINGS, TOKENS, 12, [whole_sketch])
    (tmp_path / "whole").mkdir()
    expected = [path.read_bytes() for path in save(tmp_path / "whole", whole)]
    whole_sketch.save(tmp_path / "whole.sketch", {"seed": "7"})
    # Who looks on changes nothing.
    alone, _ = train(fresh(), SETTINGS, TOKENS, 12)
    (tmp_path / "alone").mkdir()
    assert [path.read_bytes() for path in save(tmp_path / "alone", alone)] == expected

    # One sketch a job: a job of one checkpoint has its own, a job of all checkpoints keeps one.
    kept, kept_files = sketch(), []
    paths, pieces, sketches = save(tmp_path, fresh()), [], []
    for end in [*cuts, 12]:
        state = load_state(*paths, SHAPE, CPU)
        if state.step == end == 12:
            continue
        observer = sketch()
        state, some = train(state, SETTINGS, TOKENS, end, [observer, kept])
        pieces += some
        paths = save(tmp_path, state)
        sketches.append(tmp_path / f"{end}.sketch")
        observer.save(sketches[-1], {})
        kept_files.append(tmp_path / f"{end}.kept")
        kept.save(kept_files[-1], {})
    assert pieces == rows
    assert [path.read_bytes() for path in paths] == expected
    assert [path.read_bytes() for path in kept_files] == [path.read_bytes() for path in sketches]
    parts = [tensor_files.read(path)[0] for path in sketches]
    whole = tensor_files.read(tmp_path / "whole.sketch")[0]
    for name in ("step", "sketch"):
        np.testing.assert_array_equal(np.concatenate([part[name] for part in parts]), whole[name])


def test_save_weights_same_bytes_with_more_threads(tmp_path):
    script = (
        "import sys, torch; torch.set_num_threads(2)\n"
        "sys.path.insert(0, sys.argv[1])\n"
        "from pathlib import Path\n"
        "from test_training import fresh, save, train, SETTINGS, TOKENS, configure_torch\n"
        "configure_torch('cpu')\n"
        "save(Path(sys.argv[2]), train(fresh(), SETTINGS, TOKENS, 12)[0])\n"
    )
    command = [sys.executable, "-c", script, str(Path(__file__).parent), str(tmp_path)]
    source = str(Path(__file__).parents[2] / "src")
    subprocess.run(command, check=True, env={"PYTHONPATH": source, "PYTHONHASHSEED": "1", "OMP_NUM_THREADS": "2"})
    (tmp_path / "here").mkdir()
    for path in save(tmp_path / "here", train(fresh(), SETTINGS, TOKENS, 12)[0]):
        assert path.read_bytes() == (tmp_path / path.name).read_bytes()


def test_train_state_round_trip_and_metadata(tmp_path):
    state, _ = train(fresh(), SETTINGS, TOKENS, 5)
    weights, optimiser = save(tmp_path, state)
    loaded = load_state(weights, optimiser, SHAPE, CPU)
    assert (loaded.name, loaded.step) == ("tiny", 5)
    for name in ("weights", "first_moment", "second_moment"):
        assert torch.equal(getattr(loaded, name), getattr(state, name))
    arrays, metadata = tensor_files.read(weights)
    assert metadata == {"model": "tiny", "step": "5", "seed": "7", "config": "abc"}
    assert arrays["blocks.1.attention.qkv.weight"].shape == (24, 8)
    np.testing.assert_array_equal(arrays["token_embedding.weight"], state.model.token_embedding.weight.detach())
    tokens = torch.from_numpy(draw_batch(TOKENS, 12, 0, SETTINGS))[:, :-1]
    assert torch.equal(load_weights(weights, SHAPE, CPU)(tokens), state.model(tokens))


def test_train_files_that_do_not_belong_together_are_refused(tmp_path):
    state = fresh()
    weights, optimiser = save(tmp_path, state)
    train(state, SETTINGS, TOKENS, 2)
    later_weights, later_optimiser = save(tmp_path, state)
    with pytest.raises(UserError, match=r"step-0\.state: step 0, but .*step-2\.safetensors has 2"):
        load_state(later_weights, optimiser, SHAPE, CPU)
    with pytest.raises(UserError, match="weights of another model"):
        load_state(weights, optimiser, GPTShape(17, 12, 8, 1, 2), CPU)
    later_optimiser.write_bytes(later_optimiser.read_bytes()[:-7])
    with pytest.raises(UserError, match=r"step-2\.state: not a complete safetensors file"):
        load_state(later_weights, later_optimiser, SHAPE, CPU)
    tensor_files.write(optimiser, {"first_moment": np.zeros(3, np.float32)}, {"model": "tiny", "step": "0"})
    with pytest.raises(UserError, match=f"not an optimiser state of a model with {SHAPE.n_parameters} parameters"):
        load_state(weights, optimiser, SHAPE, CPU)


@pytest.mark.parametrize("planted", [math.nan, math.inf])
def test_train_loss_is_not_finite_stops_with_state_before_it(planted):
    state, _ = train(fresh(), SETTINGS, TOKENS, 4)
    with torch.no_grad():
        state.model.token_embedding.weight[3, 0] = planted
    before = {name: getattr(state, name).clone() for name in ("weights", "first_moment", "second_moment")}
    seen = []
    with pytest.raises(NonFiniteLossError, match=r"tiny: loss nan .* at step 4, learning rate 0\.0029") as caught:
        train(state, SETTINGS, TOKENS, 12, [lambda _, row: seen.append(row)])
    assert isinstance(caught.value, UserError)
    assert "\n" not in str(caught.value)
    assert state.step == 4
    assert seen == []
    for name, value in before.items():
        assert torch.equal(getattr(state, name).nan_to_num(), value.nan_to_num())


def test_train_learning_rate_far_too_high_ends_in_the_same_error():
    settings = TrainingSettings(steps=50, batch_size=4, learning_rate=1e30, warmup_steps=0)
    with pytest.raises(NonFiniteLossError, match=r"at step \d+, learning rate"):
        train(fresh(settings), settings, TOKENS, 50)


def test_validation_sequences_cover_the_text_evenly():
    sequences = validation_sequences(np.arange(1000, dtype=np.uint16), 9, 10)
    np.testing.assert_array_equal(sequences[:, 0], np.arange(10) * 110)
    assert sequences.shape == (10, 10)
    assert len(validation_sequences(np.arange(12, dtype=np.uint16), 9, 10)) == 3
    with pytest.raises(ValueError, match="tokens: 9, but a sequence takes 10"):
        validation_sequences(np.arange(9, dtype=np.uint16), 9)


def test_train_validation_loss_mean_over_tokens_whatever_batches():
    state, _ = train(fresh(), SETTINGS, TOKENS, 4)
    sequences = validation_sequences(TOKENS, 12, 7)
    logits = state.model(torch.from_numpy(sequences[:, :-1])).detach().double()
    logs = torch.log_softmax(logits, dim=-1).gather(2, torch.from_numpy(sequences[:, 1:, None]))
    for batch_size in (1, 3, 7, 64):
        # float32 logits: rounding of about 1e-7.
        assert validation_loss(state.model, sequences, batch_size) == pytest.approx(-logs.mean().item(), rel=1e-6)


def test_weight_sketch_keeps_distances_on_average():
    sketch = WeightSketch(SHAPE.n_parameters, size=400, every=1, seed=1)
    state = fresh()
    start = state.weights.clone()
    train(state, SETTINGS, TOKENS, 5, [sketch])
    assert sketch.steps == [0, 1, 2, 3, 4]
    sketch(state, {"step": 5})
    true = (state.weights - start).norm().item()
    found = float(np.linalg.norm(sketch.rows[-1] - sketch.rows[0]))
    # The squared norm has relative standard deviation sqrt(2 / 400) = 0.07; five of them.
    assert (found / true) ** 2 == pytest.approx(1, abs=0.36)
    again = WeightSketch(SHAPE.n_parameters, size=400, every=1, seed=2)
    again(state, {"step": 5})
    assert not np.array_equal(again.rows[0], sketch.rows[-1])


def test_progress_log_progress_tells_speed_and_time_left():
    times = iter([0.0, 1.0, 6.0, 9.0, 12.0])
    file = io.StringIO()
    log = ProgressLog(file, 12, interval=5, clock=lambda: next(times))
    state = fresh()
    for step in (0, 1, 3, 5, 12):
        log(state, {"step": step, "loss": 2.5})
    assert file.getvalue().splitlines() == [
        "tiny: step 0 of 12, loss 2.5000",
        "tiny: step 3 of 12, loss 2.5000, 0.5 steps/s, 0:18 left",
        "tiny: step 12 of 12, loss 2.5000, 1.0 steps/s, 0:00 left",
    ]


def test_configure_torch_a_missing_device_is_named():
    if not torch.cuda.is_available():
        with pytest.raises(UserError, match="device: cuda, but PyTorch sees no CUDA device"):
            configure_torch("cuda")


@pytest.mark.skipif(not torch.cuda.is_available(), reason="PyTorch sees no CUDA device here")
def test_train_cuda_follows_the_cpu():
    on_cpu = train(fresh(), SETTINGS, TOKENS, 12)[1]
    on_cuda = train(initial_state("tiny", SHAPE, SETTINGS, configure_torch("cuda")), SETTINGS, TOKENS, 12)[1]
    for ours, theirs in zip(on_cuda, on_cpu, strict=True):
        assert ours["loss"] == pytest.approx(theirs["loss"], abs=1e-4)
