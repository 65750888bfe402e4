"""Describe one checkpoint and compare two: `toposcale.describe`, `compare`, and every feature in long form."""

import math
import os
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd
from pandas.plotting import PlotAccessor

from toposcale.checkpoints import Checkpoint, FolderSource
from toposcale.features import diagram_distances, weights
from toposcale.features.adapters import is_product
from toposcale.features.feature import RELATIVE_CHANGE, SUMMARY
from toposcale.features.registry import group_of
from toposcale.features.roles import odd_layers
from toposcale.features.weight_changes import WeightChange, unrelated_sentences, weight_changes
from toposcale.io import tables, weight_files
from toposcale.io.bin_files import unwrap_weights
from toposcale.io.errors import UserError, as_user_error, counted, listed
from toposcale.io.reparametrised import is_part
from toposcale.io.schemas import ALL_LAYERS

if TYPE_CHECKING:
    from matplotlib.axes import Axes


class _Comparison(NamedTuple):
    """Measurements of two checkpoints, and the changes of the weights by layer."""

    first: weights.Measurement
    second: weights.Measurement
    changes: dict[str, WeightChange]


class MatrixTable(pd.DataFrame):
    """Table of `describe` or `compare`, which draws its matrices; what is taken from it is a plain DataFrame."""

    def __repr__(self) -> str:
        return f"<MatrixTable: {counted(len(self), 'row')} of {listed(map(str, self.columns), 4)}>"

    def __str__(self) -> str:
        return super().__repr__()

    def to_frame(self) -> pd.DataFrame:
        """Return the rows as a plain DataFrame."""
        return self.copy()

    @property
    def plot(self) -> "_MatrixPlot":
        """Draw the matrices, or with options of `pandas.DataFrame.plot` its picture."""
        return _MatrixPlot(self)


class _MatrixPlot(PlotAccessor):
    def __init__(self, table: MatrixTable) -> None:
        super().__init__(table)
        self._table = table

    def __call__(self, ax: "Axes | None" = None, **options: Any) -> Any:
        """Draw a panel per feature, or the first feature into `ax`; return the first panel."""
        from toposcale import plot_matrices

        if options:
            return super().__call__(ax=ax, **options)
        figure = plot_matrices(self._table, ax=ax)
        return ax if ax is not None else figure.axes[0]


def describe(
    source: Any, *, layers: str | Sequence[str] = "*", progress: weights.Progress | None = None, **settings: Any
) -> pd.DataFrame:
    """Describe the weights of a model: one row per matrix, and a last one for the whole model.

    Parameters
    ----------
    source : str, path-like, torch.nn.Module or mapping of str to array
        A safetensors, ``.bin`` or ``.pt`` file, a folder in the layout of Hugging Face, a module, matrices
        (n_out, n_in) by name, or what ``torch.load`` returns of the checkpoint of a training loop.
    layers : str or sequence of str, default="*"
        Globs of the matrices to describe. The others only set the scale of `neural_persistence_p2`.
    progress : callable, optional
        Function of the matrices and their number that returns the same matrices, as `rich.progress.track` does.
    **settings
        Fields of `toposcale.features.weights.WeightSettings`, for instance ``max_points=200`` rows, or
        ``features=("norms", "spectra")``, the groups to compute (or one as a str), of which "topology" is the third.

    Returns
    -------
    pandas.DataFrame
        Index `layer`, the last one "all": the whole model. Columns: `shape` (n_out, n_in), `parameters`, the features of
        `toposcale.features.feature.SUMMARY`, and `odd`: the features in which the layer is an outlier among the same
        layers of other blocks (`toposcale.features.roles.odd_layers`), or "". ``attrs["notes"]`` lists what was left
        out, and ``plot()`` draws the matrices.
        Features of a matrix with a NaN or an infinity are NaN, with a RuntimeWarning.

    Raises
    ------
    UserError
        If the checkpoint is missing, damaged or quantised, or contains none of the chosen matrices.
    TypeError
        If `source` has another type.

    See Also
    --------
    features_of : Every feature.

    Examples
    --------
    >>> import numpy as np, toposcale
    >>> table = toposcale.describe({"square": np.array([[0.0, 0.0], [1.0, 0.0], [1.0, 1.0], [0.0, 1.0]])})
    >>> table.loc["square", "shape"], float(table.loc["all", "frobenius_norm"])
    ((4, 2), 2.0)
    """
    measurement = _measure(_open_checkpoint(source), SUMMARY, layers=layers, progress=progress, **settings)
    features, _, shapes, notes = measurement
    order = [*shapes, ALL_LAYERS]
    summary_table = _summary(features, order)
    summary = {layer: {name: features[layer].get(name, np.nan) for name in SUMMARY} for layer in shapes}
    odd = odd_layers(summary, shapes)
    parameters = [0 if is_product(layer) else math.prod(shape) for layer, shape in shapes.items()]
    table = summary_table.assign(odd=["; ".join(one.reason for one in odd if one.layer == layer) for layer in order])
    table.insert(0, "shape", [shapes.get(layer) for layer in order])
    table.insert(1, "parameters", [*parameters, sum(parameters)])
    table = MatrixTable(table)
    table.attrs["notes"] = notes
    return table


def features_of(source: Any, *, names: Collection[str] = (), **options: Any) -> pd.DataFrame:
    """Compute every feature of a model's weights, in long form; of a folder of checkpoints, step by step.

    Parameters
    ----------
    source, **options
        As in `describe`. Also a folder of checkpoints of one training, such as the output folder of transformers' Trainer.
    names : collection of str, optional
        Features to compute; all by default.

    Returns
    -------
    pandas.DataFrame
        Columns `layer`, `feature` and `value`; the layer "all" is the whole model. `toposcale.features.registry` has the
        units. ``attrs["notes"]`` as in `describe`. Of a folder of checkpoints `step` is the first column, the notes are
        those of the last checkpoint, and what is the same at every checkpoint is left out.

    Raises
    ------
    UserError, TypeError
        As in `describe`, and UserError if the checkpoints in a folder are of several trainings.

    Examples
    --------
    >>> import numpy as np, toposcale
    >>> square = np.array([[0.0, 0.0], [1.0, 0.0], [1.0, 1.0], [0.0, 1.0]])
    >>> features = toposcale.features_of({"square": square}).set_index(["layer", "feature"])["value"]
    >>> float(features["square", "h0_total"]), float(features["square", "h1_count"])
    (3.0, 1.0)
    """
    for name in names:
        try:
            group_of(name)
        except LookupError as error:
            raise UserError(f"names: {error}") from None
    if by_step := checkpoints_of(source):
        folder = FolderSource(Path(source))
        steps, missing = folder.usable_steps()
        by_step = {step: by_step[step] for step in steps}
        unchanged = _unchanged_digests(map(_open_checkpoint, by_step.values()))
        tables_by_step = {
            step: _long_table(_measure(_open_checkpoint(path), names, unchanged, **options), names)
            for step, path in by_step.items()
        }
        last_notes = tables_by_step[max(tables_by_step)].attrs["notes"]
        table = pd.concat(tables_by_step, names=["step"]).reset_index("step").reset_index(drop=True)
        epochs = ["the steps are epochs: the files do not hold the number of steps"] * folder.counts_epochs
        table.attrs["notes"] = epochs + last_notes + [f"left out: {reason}" for reason in missing.values()]
        return table
    return _long_table(_measure(_open_checkpoint(source), names, **options), names)


def _long_table(measurement: weights.Measurement, names: Collection[str]) -> pd.DataFrame:
    """Return the features, or those of these names, in long form, with the notes."""
    table = _values(measurement.features, "value").reset_index()
    if names:
        table = table[table["feature"].isin(names)].reset_index(drop=True)
    table.attrs["notes"] = measurement.notes
    return table


def checkpoints_of(source: Any) -> dict[int, Path]:
    """Return the checkpoints of a folder by step; {} for a single checkpoint, or for anything but a folder."""
    if not isinstance(source, str | os.PathLike) or not Path(source).is_dir():
        return {}
    if weight_files.choose_weight_files(os.listdir(source)):
        return {}
    try:
        folder = FolderSource(Path(source))
        return {step: folder.checkpoint(step) for step in folder.steps()}
    except UserError:
        return {}


def compare(before: Any, after: Any, **options: Any) -> pd.DataFrame:
    """Compare the weights of two checkpoints: one row per matrix, and a last one for the whole model.

    Parameters
    ----------
    before, after : str, path-like, torch.nn.Module or mapping of str to array
        The two checkpoints, as `source` in `describe`.
    **options
        As in `describe`.

    Returns
    -------
    pandas.DataFrame
        Index `layer`, the last one "all". Columns: `shape` (n_out, n_in), `relative_change` (the norm of the difference
        over the norm of `before`), and the features of `toposcale.features.feature.SUMMARY`, each as (after - before) /
        before. A layer of only one checkpoint is NaN, and what is the same in both is left out. ``attrs["notes"]`` as in
        `describe`, for `after`; two unrelated checkpoints, such as those of two seeds, are named so.

    Raises
    ------
    UserError, TypeError
        As in `describe`, and UserError if the two have no layer in common.

    See Also
    --------
    changes_of : Every feature, and distances between the persistence diagrams.

    Examples
    --------
    >>> import numpy as np, toposcale
    >>> matrix = np.random.default_rng(0).standard_normal((6, 4))
    >>> table = toposcale.compare({"w": matrix}, {"w": 2 * matrix})
    >>> float(table.loc["w", "relative_change"]), float(table.loc["w", "frobenius_norm"])
    (1.0, 1.0)
    """
    first, second, changes = _measure_both(before, after, SUMMARY, **options)
    order = _ordered_layers(first, second)
    earlier, later = (_summary(side.features, order) for side in (first, second))
    names = [name for name in SUMMARY if name in earlier or name in later]
    earlier, later = earlier.reindex(columns=names), later.reindex(columns=names)
    with np.errstate(divide="ignore", invalid="ignore"):
        table = ((later - earlier) / earlier).where(earlier != later, 0.0)
    shapes = first.shapes | second.shapes
    table.insert(0, "shape", [shapes.get(layer) for layer in order])
    table.insert(1, RELATIVE_CHANGE, [changes[layer].relative if layer in changes else np.nan for layer in order])
    table = MatrixTable(table)
    table.attrs["notes"] = [*unrelated_sentences(changes), *second.notes]
    return table


def changes_of(before: Any, after: Any, **options: Any) -> pd.DataFrame:
    """Compare the weights of two checkpoints, feature by feature, in long form.

    Parameters
    ----------
    before, after : str, path-like, torch.nn.Module or mapping of str to array
        The two checkpoints, as `source` in `describe`.
    **options
        As in `describe`.

    Returns
    -------
    pandas.DataFrame
        Columns `layer`, `feature`, `before`, `after` and `change` (after - before), in the units of the feature. Distances
        between persistence diagrams, such as ``h0_wasserstein_1``, have only a `change`, and so have `relative_change`,
        `cosine_similarity` and `subspace_overlap` (of the spans of the ten leading singular vectors). A layer of only one
        checkpoint is NaN for the other. ``attrs["notes"]`` as in `compare`.

    Raises
    ------
    UserError, TypeError
        As in `compare`.

    Examples
    --------
    >>> import numpy as np, toposcale
    >>> matrix = np.random.default_rng(0).standard_normal((6, 4))
    >>> table = toposcale.changes_of({"w": matrix}, {"w": 2 * matrix}).set_index(["layer", "feature"])
    >>> round(float(table.loc[("w", "h0_total"), "after"] / table.loc[("w", "h0_total"), "before"]), 12)
    2.0
    """
    first, second, changes = _measure_both(before, after, with_subspaces=True, **options)
    common = first.diagrams.keys() & second.diagrams.keys()
    bars = (
        tables.diagram_rows({layer: side.diagrams[layer] for layer in common}, model="m", step=step, source="weights")
        for step, side in enumerate((first, second))
    )
    distances = _values(diagram_distances.distances(*bars), "change")
    sides = [_values(first.features, "before"), _values(second.features, "after")]
    table = pd.concat(sides, axis=1, sort=False).assign(change=lambda both: both["after"] - both["before"])
    moved = _values({layer: change.features() for layer, change in changes.items()}, "change")
    table = pd.concat([table, distances.to_frame(), moved.to_frame()]).reset_index()
    order = {layer: index for index, layer in enumerate(_ordered_layers(first, second))}
    table = table.sort_values("layer", key=lambda layers: layers.map(order), kind="stable", ignore_index=True)
    table.attrs["notes"] = [*unrelated_sentences(changes), *second.notes]
    return table


def _measure_both(
    before: Any, after: Any, names: Collection[str] = (), *, with_subspaces: bool = False, **options: Any
) -> _Comparison:
    """Measure two checkpoints, without the weights that are the same in both unless they have no other layer in common.

    Raise UserError if they have no layer in common.
    """
    sides = _open_checkpoint(before), _open_checkpoint(after)
    for unchanged in (_unchanged_digests(sides), set[str]()):
        first, second = (_measure(side, names, unchanged, **options) for side in sides)
        if common := first.shapes.keys() & second.shapes.keys():
            earlier, later = (side.matrices() for side in sides)
            changes = weight_changes(earlier, later, common, with_subspaces=with_subspaces)
            return _Comparison(first, second, changes)
    layers = listed(first.shapes, 5), listed(second.shapes, 5)
    raise UserError(f"the two have no layer in common; the first has {layers[0]}, the second {layers[1]}")


def _unchanged_digests(checkpoints: Iterable[Checkpoint]) -> set[str]:
    """Return the digests of the weights that are the same in all of these checkpoints, if there are two or more."""
    digests = [set(checkpoint.digests(whole=True).values()) for checkpoint in checkpoints]
    return set.intersection(*digests) if len(digests) > 1 else set()


def _ordered_layers(first: weights.Measurement, second: weights.Measurement) -> list[str]:
    """Return the layers of both, and the whole model last."""
    return [*sorted(first.shapes | second.shapes, key=_natural_sort_key), ALL_LAYERS]


def _natural_sort_key(layer: str) -> list[str | int]:
    """Return a key that sorts layer 2 before layer 10."""
    return [int(part) if part.isdecimal() else part for part in re.split(r"(\d+)", layer)]


def _measure(
    checkpoint: Checkpoint,
    names: Collection[str] = (),
    unchanged: Collection[str] = (),
    *,
    layers: str | Sequence[str] = "*",
    progress: weights.Progress | None = None,
    **settings: Any,
) -> weights.Measurement:
    include = (layers,) if isinstance(layers, str) else tuple(layers)
    if isinstance(group := settings.get("features"), str):
        settings["features"] = (group,)
    choice = weights.WeightSettings(include=include, **settings)
    if unknown := set(choice.features) - weights.CHOOSABLE_GROUPS.keys():
        raise UserError(f"features: {', '.join(sorted(unknown))} is none of {', '.join(weights.CHOOSABLE_GROUPS)}")
    frozen = checkpoint.frozen(unchanged, whole=True)
    notes = checkpoint.left_out(frozen, choice.wants)
    if checkpoint.is_only_file:
        notes.insert(0, f"{checkpoint.files[0].name}: the only file of weights there")
    shapes = checkpoint.matrix_shapes(frozen)
    if not any(map(choice.wants, shapes)):
        reason = f"is called {' or '.join(include)}; its layers are {listed(shapes, 5)}"
        raise UserError(f"{checkpoint.where}no weight matrix {reason if shapes else '; '.join(['in it', *notes])}")
    measurement = weights.measure(checkpoint, choice, frozen, names=names, progress=progress)
    in_order = {layer: measurement.shapes[layer] for layer in sorted(measurement.shapes, key=_natural_sort_key)}
    return measurement._replace(shapes=in_order, notes=notes + measurement.notes)


def _open_checkpoint(source: Any) -> Checkpoint:
    if isinstance(source, str | os.PathLike):
        _refuse_several(Path(source))
        return Checkpoint(source)
    if isinstance(source, Mapping):
        return Checkpoint(_as_arrays(source))
    if hasattr(source, "named_parameters"):
        parts = {name: buffer for name, buffer in source.named_buffers() if is_part(name)}
        return Checkpoint(_as_arrays(dict(source.named_parameters()) | parts))
    raise TypeError(f"source: a path, a PyTorch module or arrays by name, not a {type(source).__name__}")


def _summary(features: Mapping[str, Mapping[str, float]], order: list[str]) -> pd.DataFrame:
    """Return the computed features of `SUMMARY` for the layers in this order."""
    table = pd.DataFrame(features).T.reindex(order).rename_axis("layer")
    computed = weights.computed_names(features)
    return table.reindex(columns=[name for name in SUMMARY if name in computed])


def _as_arrays(tensors: Mapping[Any, Any]) -> dict[str, Any]:
    """Convert lists to arrays; raise UserError for a name that is not a str, or a value that is not an array."""
    arrays = {}
    if any(isinstance(value, Mapping) for value in tensors.values()):
        tensors = unwrap_weights(dict(tensors), type(tensors).__name__)
    for name, value in tensors.items():
        if not isinstance(name, str):
            raise UserError(f"arrays are described by name, but {name!r} is not a string")
        if isinstance(value, Mapping):
            raise UserError(f"{name}: not an array, but a {type(value).__name__}; give only the weights")
        with as_user_error(name, "not an array", ValueError):
            arrays[name] = value if hasattr(value, "dtype") else np.asarray(value)
        if (kind := getattr(arrays[name].dtype, "kind", "")) in ("S", "U", "O"):
            raise UserError(f"{name}: not an array of numbers, but of {'objects' if kind == 'O' else 'text'}")
        if isinstance(arrays[name], np.ma.MaskedArray):
            raise UserError(f"{name}: a masked array; fill in its values, for instance with filled(0)")
    return arrays


def _refuse_several(folder: Path) -> None:
    """Raise UserError, which names them, for a folder of checkpoints such as the Trainer's."""
    names = [path.name for path in checkpoints_of(folder).values()]
    if len(names) > 1:
        raise UserError(
            f"{folder}: a folder of checkpoints; name one of them, such as {folder / names[-1]} ({listed(names, 5)})"
        )


def _values(features: Mapping[str, Mapping[str, float]], name: str) -> pd.Series:
    """Return features as a series called `name`, by layer and feature."""
    values = {(layer, feature): float(value) for layer, named in features.items() for feature, value in named.items()}
    index = pd.MultiIndex.from_tuples(list(values), names=["layer", "feature"])
    return pd.Series(list(values.values()), index, name=name, dtype=np.float64)
