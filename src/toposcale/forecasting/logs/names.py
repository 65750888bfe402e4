"""Names in training logs: what a column counts or measures by its name."""

import re
from enum import IntEnum
from typing import NamedTuple

RATES = ("learning_rate", "lr", "train/learning_rate", "train/lr", "learning/rate")
NORMS = ("gradient_norm", "grad_norm", "train/grad_norm", "train/gradient_norm", "gnorm", "global_grad_norm")
END = "total_steps"
LAST_STEP = (END, "max_steps", "max_iters", "num_training_steps", "train_iters")
"""Columns of the learning rate, of the gradient norm and of the last step of the training."""

CONSUMED = (
    *("tokens", "num_tokens", "total_tokens", "tokens_seen", "consumed_tokens", "num_input_tokens_seen"),
    *("train/num_input_tokens_seen", "train/tokens", "consumed_samples"),
)
PER_STEP, PARAMETERS = "tokens_per_step", "n_parameters"
OF_THE_BATCH = (*CONSUMED, PER_STEP, "batch_tokens", "global_batch_size", "batch_size")
IN_SEQUENCES = ("consumed_samples", "global_batch_size", "batch_size")
"""Columns of the tokens or sequences read so far, these with those of a step, and those that do not count tokens."""

BITS = re.compile(r"(?:^|[\W_])(?:bp[btc]|bits?(?:_per_(?:byte|token|char(?:acter)?))?)(?:$|[\W_])")
PERPLEXITY = re.compile(r"(?:^|[\W_])(?:ppl|perplexity)(?:$|[\W_])")
ACCURACY = re.compile(
    r"(?:^|[\W_])(?:top[\W_]?[15]|(?:top[\W_]?[15][\W_]?)?acc(?:uracy|[@_]?[15])?)(?:$|[\W_](?!step))"
)
"""Lower-case names of losses in bits, of perplexities, and of accuracies."""


class Counter(IntEnum):
    """Meaning of the name of a column of steps; a higher value is a surer count of the updates of the weights."""

    TRACKER = 0
    MICRO_STEP = 1
    ITERATION = 2
    STEP = 3
    UPDATE = 4


_COUNTERS = {
    Counter.TRACKER: "_step",
    Counter.MICRO_STEP: "micro_step micro_steps microstep micro_batch",
    Counter.ITERATION: "iteration iterations iter iters it",
    Counter.STEP: "step steps train_step train/step training_step train_steps current_step current_steps train/iteration",
    Counter.UPDATE: (
        "update updates num_updates optimizer_step optimizer_steps opt_step optim_step global_step global_steps "
        "train/global_step trainer/global_step"
    ),
}
COUNTERS = {name: counter for counter, names in _COUNTERS.items() for name in names.split()}


def word_sets(*texts: str) -> tuple[frozenset[str], ...]:
    """Return the words of each text."""
    return tuple(frozenset(text.split()) for text in texts)


TRAINING, VALIDATION, TEST = word_sets(
    "train training trn tr fit trainloss",
    "val valid validation validate validating eval evaluation evaluate evaluating evaluator dev valloss",
    "test testing heldout",
)
"""Words of the three splits."""

SPLITS, RANKS, RUNS, METRICS, VALUES = word_sets(
    "split event phase mode stage set subset partition kind type job_type tag context",
    "rank local_rank global_rank worker worker_id process process_index device gpu replica micro_step micro_batch",
    "run run_id run_name runid name seed trial trial_id experiment exp model config job job_id sweep group id",
    "metric metric_name metricname name key tag variable series feature",
    "value metric_value metricvalue scalar",
)
"""Columns that label rows: by split, process (or part of a step), run and metric; and those of the values of a metric."""

_CROSS_ENTROPY, _TOTAL, _MEAN, _PART, _PLAIN = word_sets(
    "lm ce xent nll logits ntp cross entropy crossentropy crossentropyloss languagecrossentropy",
    "total sum overall combined",
    "avg average mean smooth smoothed ema running moving median epoch",
    "aux auxiliary z moe router seq load balance balancing mtp kl reg regularization l2 distill commitment penalty",
    "loss losses step reduced metrics global local current batch per token",
)
OF_LOSSES = re.compile(r"loss(?![a-z])|cross_?entropy")
_KNOWN_WORDS = frozenset().union(TRAINING, VALIDATION, TEST, _CROSS_ENTROPY, _TOTAL, _MEAN, _PART, _PLAIN)


class LossName(NamedTuple):
    """Meaning of the name of a loss; split: TRAINING, VALIDATION or TEST."""

    split: frozenset[str]
    is_cross_entropy: bool
    is_total: bool
    is_mean: bool
    is_part: bool


def plain_name(name: str) -> str:
    """Return a name in lower case with underscores, without the run of W&B, the mark of a comment, and the unit nats."""
    plain = re.sub(r"^.* - |\s*\(nats?\b[^()]*\)$", "", name[-200:]).strip("# \t").lower()
    return re.sub(r"[ -]", "_", plain)


def loss_name(name: str) -> LossName | None:
    """Return what a name says of a loss; None if it is not the name of one."""
    plain = re.sub(r"[\W_]value$", "", plain_name(name))
    words = set(re.split(r"[^a-z0-9]+", plain)) - {""}
    if words & _PART and sum(map(str.isdecimal, words)) == 1:  # the loss of one of several heads or layers
        words = {word for word in words if not word.isdecimal()}
    if not OF_LOSSES.search(plain) or words - _KNOWN_WORDS:
        return None
    split = VALIDATION if words & VALIDATION else TEST if words & TEST else TRAINING
    return LossName(split, *(bool(words & known) for known in (_CROSS_ENTROPY, _TOTAL, _MEAN, _PART)))


def split_of(name: str) -> frozenset[str] | None:
    """Return the split that the name of a list or a folder says, None if it says none."""
    words = set(re.split(r"[^a-z]+", name.lower()))
    return next((split for split in (VALIDATION, TEST, TRAINING) if words & split), None)


def with_split(name: str, group: str) -> str:
    """Return a name with the split that its list or folder says and it does not say itself."""
    split, loss = split_of(group), loss_name(name)
    if plain_name(name) in (*COUNTERS, "epoch"):  # steps are those of the training
        return name
    prefix = "validation/" if split is VALIDATION else "test/" if split is TEST else ""
    return name if loss and loss.split is not TRAINING else prefix + name


def is_step_or_loss(name: str) -> bool:
    """Return whether a name is that of a step or of a loss."""
    return plain_name(name) in COUNTERS or loss_name(name) is not None


def is_known(name: str) -> bool:
    """Return whether a column is read by its name."""
    quantities = (*RATES, *NORMS, *LAST_STEP, *OF_THE_BATCH, PARAMETERS)
    return is_step_or_loss(name) or plain_name(name) in quantities
