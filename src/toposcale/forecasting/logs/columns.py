"""Names of the columns of a training log in experiment trackers: step, losses, learning rate, gradient norm."""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from toposcale.io.errors import UserError, listed

# In lower case. Of several names of the step the first one present counts, since a tracker's own count (`_step`) need not
# be the training's step.
NAMES = {
    "step": (
        *("step", "train/global_step", "trainer/global_step", "global_step", "_step", "iteration", "iter"),
        *("current_steps", "num_updates", "steps", "global_steps", "train_step", "train/step", "training_step"),
        *("optimizer_step", "update", "updates", "iterations", "iters", "it"),
    ),
    "loss": (
        *("loss", "train/loss", "train_loss", "training_loss", "train/loss_step", "train_loss_step"),
        *("loss/train", "training/loss", "loss/train/total", "lm loss", "lm_loss", "lm-loss", "train/lm_loss"),
        *("cross_entropy", "train/cross_entropy", "cross_entropy_loss", "train/crossentropyloss", "ce_loss"),
        *("train/ce_loss", "reduced_train_loss", "loss_metrics/global_avg_loss"),
    ),
    "gradient_norm": ("gradient_norm", "grad_norm", "train/grad_norm", "train/gradient_norm", "grad-norm"),
    "learning_rate": ("learning_rate", "lr", "train/learning_rate", "train/lr", "learning-rate"),
    "validation_loss": (
        *("validation_loss", "val_loss", "eval_loss", "eval/loss", "val/loss", "validation/loss"),
        *("valid_loss", "valid/loss", "test_loss", "test/loss", "loss/val", "loss/validation", "loss/eval"),
        *("lm loss validation", "lm_loss_validation", "val_cross_entropy"),
        *("eval/crossentropyloss", "eval/cross_entropy"),
    ),
}

END = "total_steps"
LAST_STEP = (END, "max_steps", "max_iters", "num_training_steps", "train_iters")
"""Columns of the last step of the training."""

CONSUMED = (
    *("tokens", "num_tokens", "total_tokens", "tokens_seen", "consumed_tokens", "num_input_tokens_seen"),
    *("train/num_input_tokens_seen", "train/tokens", "consumed_samples", "consumed samples"),
)
PER_STEP, PARAMETERS = "tokens_per_step", "n_parameters"
OF_THE_BATCH = (*CONSUMED, PER_STEP, "batch_tokens", "global_batch_size", "batch_size", "global batch size")
"""Columns of the tokens or sequences read so far, and these with those of a step."""

IN_SEQUENCES = ("consumed_samples", "consumed samples", "global_batch_size", "batch_size", "global batch size")
"""Columns of the batch that do not count tokens."""

BITS = re.compile(r"(?:^|[\W_])(?:bp[btc]|bits?(?:_per_(?:byte|token|char(?:acter)?))?)(?:$|[\W_])")
"""Lower-case names of losses in bits, mostly per byte."""


def plain_name(name: str) -> str:
    """Return a name in lower case with underscores, without the run of W&B, the mark of a comment, and the unit nats."""
    plain = re.sub(r"^.* - |\s*\(nats?\b.*\)$", "", name).strip("# \t").lower()
    return plain.replace(" ", "_")


def matched(names: Iterable[str], where: str | Path, chosen: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the column name of each quantity that is logged (step, loss, ...).

    `chosen` holds the columns that the user named, by quantity ("step", "loss"); no other loss is read then. W&B puts the
    run's name before a metric and adds columns for its extremes. Raise UserError if two columns hold one quantity, or if a
    named column does not exist.
    """
    existing = list(names)
    plain: dict[str, list[str]] = {}
    for name in existing:
        if not name.endswith(("__MIN", "__MAX")):
            plain.setdefault(plain_name(name), []).append(name)
    column_of = dict(chosen or {})
    for quantity, name in column_of.items():
        if name not in existing:
            raise UserError(f"{where}: no column {name} for the {quantity}; its columns are {listed(existing, 40)}")
    for quantity, aliases in NAMES.items():
        if quantity in column_of or (quantity == "validation_loss" and "loss" in (chosen or {})):
            continue
        named = [name for name in aliases if name in plain]
        named += [name for name in plain if quantity == "learning_rate" and name.startswith("lr-")]
        present = [column for name in named for column in plain[name]]
        if len(present) > 1 and quantity != "step":
            remedy = ", or name one with --loss-column (loss_column)" if quantity == "loss" else ""
            problem = f"both hold the {quantity.replace('_', ' ')}; remove one of them{remedy}"
            raise UserError(f"{where}: columns {' and '.join(present)} {problem}")
        if present:
            column_of[quantity] = present[0]
    # The export of one TensorBoard curve calls its loss `Value`; next to a loss, a value is something else.
    if not column_of.keys() & {"loss", "validation_loss"} and "value" in plain:
        column_of["loss"] = plain["value"][0]
    return column_of


def refuse_missing(column_of: Mapping[str, str], names: Iterable[str], where: str | Path, remark: str = "") -> None:
    """Raise UserError if there is no column for the step or for a loss; `remark` follows the list of columns."""
    needed = {"step": {"step"}, "loss": {"loss", "validation_loss"}}
    if missing := [quantity for quantity, columns in needed.items() if not columns & column_of.keys()]:
        names = list(names)
        if names and all(re.fullmatch(r"[-+\d.eE]+", name) for name in names):
            raise UserError(f"{where}: its first line holds numbers; begin it with the names of the columns: step,loss")
        present = f"its columns are {columns}{remark}" if (columns := listed(names, 40)) else "it has none"
        first = missing[0]
        raise UserError(
            f"{where}: no column for {' and '.join(missing)}; {present}. Call it {', '.join(NAMES[first][:3])}, or name "
            f"it: --{first}-column of the command, {first}_column in Python"
        )


def refuse_bits(column_of: Mapping[str, str], names: Iterable[str], where: str | Path) -> None:
    """Raise UserError if the name of the loss, or of any column if there is none, says bits."""
    losses = [column_of[name] for name in ("loss", "validation_loss") if name in column_of]
    if bits := [name for name in losses or names if BITS.search(name.lower())]:
        raise UserError(
            f"{where}: column {bits[0]} is in bits by its name, but a loss must be in nats per token: bits per token "
            "x 0.6931 (bits per byte x bytes per token x 0.6931); give it as a column called loss"
        )
