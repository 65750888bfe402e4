"""Features of a checkpoint, or the change between two, in one call: `toposcale.describe` and `toposcale.compare`."""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from toposcale.checkpoints import FolderSource, iterate_matrices
from toposcale.checkpoints.matrices import choose_weight_files, iterate_arrays, stored_transposed, tensor_shapes
from toposcale.features import diagram_distances, weights
from toposcale.io import tables
from toposcale.io.errors import UserError, listed
from toposcale.io.schemas import ALL_LAYERS

Matrices = Iterator[tuple[str, np.ndarray]]
Progress = Callable[[Matrices, int], Iterable[tuple[str, np.ndarray]]]
"""Called with the matrices and their number; returns the same matrices: `rich.progress.track` and the like."""


def describe(
    source: Any,
    *,
    layers: str | Sequence[str] = "*",
    model: str = "model",
    progress: Progress | None = None,
    **settings: Any,
) -> pd.DataFrame:
    """Compute the topological and spectral features of a model's weights.

    Parameters
    ----------
    source : str, path-like, torch.nn.Module or mapping of str to array
        A safetensors or ``.bin`` file, a folder in the layout of Hugging Face, a module, or matrices (n_out, n_in) by name.
    layers : str or sequence of str, default="*"
        Globs of the matrices to describe. The others are read for the scale of `neural_persistence_p2` alone.
    model : str, default="model"
        Name of the model in a run of the workflow, whose values depend on it: it seeds the draw of `max_points` rows.
    progress : callable, optional
        Called with the matrices and their number; returns an iterable of the same, as `rich.progress.track` does.
    **settings
        Fields of `toposcale.features.weights.WeightSettings`, for instance ``max_points=200`` rows.

    Returns
    -------
    pandas.DataFrame
        Columns `layer`, `feature` and `value`; the layer "all" is the whole model. `toposcale.features.registry` has the
        units. Features of a matrix with a NaN or an infinity are NaN, with a RuntimeWarning.

    Raises
    ------
    UserError
        If there is no such checkpoint, it is damaged, or no chosen matrix is in it.
    TypeError
        If `source` is none of these.

    Examples
    --------
    >>> import numpy as np, toposcale
    >>> square = np.array([[0.0, 0.0], [1.0, 0.0], [1.0, 1.0], [0.0, 1.0]])
    >>> features = toposcale.describe({"square": square}).set_index(["layer", "feature"])["value"]
    >>> float(features["square", "h0_total"]), float(features["square", "h1_count"])
    (3.0, 1.0)
    """
    features, _ = _measured(source, layers, model, progress, settings)
    return pd.DataFrame(_rows(features), columns=["layer", "feature", "value"])


def compare(
    before: Any,
    after: Any,
    *,
    layers: str | Sequence[str] = "*",
    model: str = "model",
    progress: Progress | None = None,
    **settings: Any,
) -> pd.DataFrame:
    """Compare the weights of two checkpoints, feature by feature.

    Parameters
    ----------
    before, after : str, path-like, torch.nn.Module or mapping of str to array
        The two checkpoints, as `source` in `describe`.
    layers, model, progress, **settings
        As in `describe`.

    Returns
    -------
    pandas.DataFrame
        Columns `layer`, `feature`, `before`, `after` and `change` (after - before), in the units of the feature. Distances
        between persistence diagrams, such as ``h0_wasserstein_1``, have a `change` alone. A layer that only one checkpoint
        has is NaN for the other.

    Raises
    ------
    UserError, TypeError
        As in `describe`, and UserError if the two have no layer in common.

    Examples
    --------
    >>> import numpy as np, toposcale
    >>> matrix = np.random.default_rng(0).standard_normal((6, 4))
    >>> table = toposcale.compare({"w": matrix}, {"w": 2 * matrix}).set_index(["layer", "feature"])
    >>> round(float(table.loc[("w", "h0_total"), "after"] / table.loc[("w", "h0_total"), "before"]), 12)
    2.0
    """
    (earlier, first), (later, second) = (_measured(side, layers, model, progress, settings) for side in (before, after))
    common = first.keys() & second.keys()
    if not common:
        raise UserError(
            f"the two have no layer in common; the first has {listed(first, 5)}, the second {listed(second, 5)}"
        )
    bars = (
        tables.diagram_rows({layer: diagrams[layer] for layer in common}, model=model, step=step, source="weights")
        for step, diagrams in enumerate((first, second))
    )
    rows: dict[tuple[str, str], dict[str, float]] = {}
    for side, features in (("before", earlier), ("after", later)):
        for layer, name, value in _rows(features):
            rows.setdefault((layer, name), {})[side] = value
    for values in rows.values():
        values["change"] = values.get("after", np.nan) - values.get("before", np.nan)
    for layer, name, value in _rows(diagram_distances.distances(*bars)):
        rows[layer, name] = {"change": value}
    # The rows of a layer stand together, in the order of the layers, the whole model last.
    order = {layer: index for index, layer in enumerate({**first, **second, ALL_LAYERS: None})}
    keys = sorted(rows, key=lambda key: order[key[0]])
    columns = ["layer", "feature", "before", "after", "change"]
    return pd.DataFrame([dict(zip(columns, key, strict=False)) | rows[key] for key in keys], columns=columns)


def _measured(
    source: Any, layers: str | Sequence[str], model: str, progress: Progress | None, settings: Mapping[str, Any]
) -> tuple[dict[str, weights.Features], dict[str, weights.Diagrams]]:
    include = (layers,) if isinstance(layers, str) else tuple(layers)
    chosen = weights.WeightSettings(include=include, **settings)
    shapes, matrices = _opened(source)
    names = list(shapes)
    where = str(source) if isinstance(source, str | os.PathLike) else type(source).__name__
    if not any(map(chosen.wants, names)):
        there = f"its layers are {listed(names, 5)}" if names else "it has none"
        raise UserError(f"{where}: no weight matrix is called {' or '.join(include)}; {there}")
    matrices = _with_a_chosen_one(matrices, chosen, where)
    return weights.compute_features(progress(matrices, len(names)) if progress else matrices, chosen, model=model)


def _opened(source: Any) -> tuple[dict[str, tuple[int, int]], Matrices]:
    """Return the shapes (n_out, n_in) of the 2-D tensors by name, and an iterator of the matrices."""
    if isinstance(source, str | os.PathLike):
        _refuse_several(Path(source))
        shapes: Mapping[str, Sequence[int]] = tensor_shapes(os.fspath(source))
        matrices = iterate_matrices(os.fspath(source))
    elif isinstance(source, Mapping) or hasattr(source, "named_parameters"):
        # Parameters that a module has under two names come once.
        named = _arrays(source if isinstance(source, Mapping) else dict(source.named_parameters()))
        shapes, matrices = {name: value.shape for name, value in named.items()}, iterate_arrays(named)
    else:
        raise TypeError(f"a path, a PyTorch module, or arrays by name can be described, not {type(source).__name__}")
    turned = stored_transposed(shapes)
    return {
        name: (shape[1], shape[0]) if name in turned else (shape[0], shape[1])
        for name, shape in shapes.items()
        if len(shape) == 2
    }, matrices


def _arrays(tensors: Mapping[Any, Any]) -> dict[str, Any]:
    """Convert lists to arrays. UserError: a name that is not a str, or a list that is not an array."""
    named = {}
    for name, value in tensors.items():
        if not isinstance(name, str):
            raise UserError(f"arrays are described by name, but {name!r} is not a text")
        try:
            named[name] = value if hasattr(value, "shape") else np.asarray(value)
        except ValueError as error:
            raise UserError(f"{name}: not an array ({error})") from error
    return named


def _with_a_chosen_one(matrices: Matrices, chosen: weights.WeightSettings, where: str) -> Matrices:
    """Pass the matrices on, and raise a UserError at the end if none that is chosen holds weights."""
    any_chosen = False
    for name, matrix in matrices:
        any_chosen |= chosen.wants(name)
        yield name, matrix
    if not any_chosen:
        raise UserError(f"{where}: nothing that is called {' or '.join(chosen.include)} holds floating-point numbers")


def _refuse_several(folder: Path) -> None:
    """Raise a UserError for a folder of checkpoints, such as the Trainer's; it names them."""
    if not folder.is_dir() or choose_weight_files(os.listdir(folder)):
        return
    try:
        source = FolderSource(folder)
        names = [source.checkpoint(step).name for step in source.steps()]
    except UserError:
        return
    raise UserError(
        f"{folder}: a folder of checkpoints; name one of them, such as {folder / names[-1]} ({listed(names, 5)})"
    )


def _rows(features: Mapping[str, Mapping[str, float]]) -> list[tuple[str, str, float]]:
    return [(layer, name, float(value)) for layer, named in features.items() for name, value in named.items()]
