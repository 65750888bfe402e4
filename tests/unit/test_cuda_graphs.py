"""A replayed call gives what the call gives; here the graph is acted, and on a GPU it is real."""

import contextlib
import logging
import os

import numpy as np
import pytest
import torch

from toposcale import cuda_graphs, training
from toposcale.gpt import GPTShape
from toposcale.training import TrainingPlan, configure_torch, initial_state, train

SHAPE = GPTShape(vocab_size=17, context=12, d_model=8, n_layers=2, n_heads=2)
PLAN = TrainingPlan(steps=60, batch_size=5, warmup_steps=3, seed=7)
TOKENS = ((np.arange(3000) * 5 + np.random.default_rng(0).integers(0, 3, 3000)) % 17).astype(np.uint16)


class ActedGraph:
    """What a CUDA graph does, on a CPU: the captured call again, on the same argument, into the same results."""

    def replay(self):
        argument, results = self.captured
        for result, value in zip(results, self.function(argument), strict=True):
            result.copy_(value)


@pytest.fixture
def acted(monkeypatch):
    """`replayed` with an acted graph; calls before the capture are counted in `warm_up`."""
    graph = ActedGraph()
    graph.warm_up = 0
    graph.capturing = False

    @contextlib.contextmanager
    def capture(one):
        one.capturing = True
        yield
        one.capturing = False

    class Stream:
        def wait_stream(self, other):
            pass

    for name, value in {
        "Stream": Stream,
        "current_stream": Stream,
        "stream": lambda _: contextlib.nullcontext(),
        "CUDAGraph": lambda: graph,
        "graph": capture,
    }.items():
        monkeypatch.setattr(torch.cuda, name, value)

    def watched(function):
        graph.function = function

        def call(argument):
            results = function(argument)
            graph.warm_up += not graph.capturing
            if graph.capturing:
                graph.captured = argument, results
            return results

        return call

    graph.watched = watched
    return graph


def test_a_replay_sees_each_argument_and_what_changed_in_place(acted):
    factor = torch.tensor(2.0)
    example = torch.zeros(3)
    call = cuda_graphs.replayed(acted.watched(lambda x: (x * factor, x.sum())), example)
    assert acted.warm_up == 3
    for value in (1.0, 5.0):
        product, total = call(torch.full((3,), value))
        assert product.tolist() == [2 * value] * 3
        assert total.item() == 3 * value
    factor.fill_(-1.0)
    assert call(torch.ones(3))[0].tolist() == [-1.0] * 3
    assert example.tolist() == [0.0] * 3
    assert acted.warm_up == 3


def test_training_through_a_graph_is_training(acted, monkeypatch):
    expected, rows = train(initial_state("m", SHAPE, PLAN, torch.device("cpu")), PLAN, TOKENS, 60)
    made = []

    def always(state, plan, steps):
        shape = (plan.batch_size, state.model.shape.context + 1)
        function = acted.watched(lambda windows: training.loss_and_gradient(state.model, windows))
        made.append(cuda_graphs.replayed(function, torch.zeros(shape, dtype=torch.int64)))
        return made[0]

    monkeypatch.setattr(training, "_gradient_function", always)
    state, replayed_rows = train(initial_state("m", SHAPE, PLAN, torch.device("cpu")), PLAN, TOKENS, 60)
    assert len(made) == 1
    assert replayed_rows == rows
    assert torch.equal(state.weights, expected.weights)


def test_a_failed_capture_leaves_the_plain_function_and_a_warning(monkeypatch, caplog):
    def broken():
        raise RuntimeError("operation not permitted when stream is capturing")

    monkeypatch.setattr(torch.cuda, "Stream", broken)

    def function(x):
        return (x,)

    with caplog.at_level(logging.WARNING):
        assert cuda_graphs.replayed(function, torch.zeros(1)) is function
    assert "not permitted when stream is capturing" in caplog.text


def test_a_cpu_never_comes_near_a_graph(monkeypatch):
    monkeypatch.setattr(cuda_graphs, "replayed", None)
    train(initial_state("m", SHAPE, PLAN, torch.device("cpu")), PLAN, TOKENS, 60)


def test_cuda_is_asked_for_full_precision_and_for_determinism(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", "")
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG")
    fill = torch.utils.deterministic.fill_uninitialized_memory
    torch.set_float32_matmul_precision("high")
    try:
        assert configure_torch("auto").type == "cuda"
        assert torch.get_float32_matmul_precision() == "highest"
        assert not torch.backends.cuda.matmul.allow_tf32
        assert torch.are_deterministic_algorithms_enabled()
        assert os.environ["CUBLAS_WORKSPACE_CONFIG"] == ":4096:8"
    finally:
        torch.use_deterministic_algorithms(False)
        torch.utils.deterministic.fill_uninitialized_memory = fill
        torch.set_float32_matmul_precision("highest")


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_a_real_graph_gives_the_same_bits(monkeypatch):
    device = configure_torch("cuda")
    state, rows = train(initial_state("m", SHAPE, PLAN, device), PLAN, TOKENS, 60)
    monkeypatch.setattr(cuda_graphs, "replayed", lambda function, example: function)
    plain, plain_rows = train(initial_state("m", SHAPE, PLAN, device), PLAN, TOKENS, 60)
    assert rows == plain_rows
    assert torch.equal(state.weights, plain.weights)
