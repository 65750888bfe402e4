"""Paths: where a run keeps each kind of file, as patterns with wildcards, and where the project is."""

from collections.abc import Iterable
from dataclasses import dataclass, fields
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
"""The folder of the project, or of the workflow in an installed toposcale."""

LIBRARY = ROOT / "src" if (ROOT / "src").is_dir() else ROOT.parents[1]
"""The folder of the package toposcale, which has the workflow inside where it is installed."""


@dataclass(frozen=True)
class Paths:
    """Path patterns of a run, with its folder in front; `producers.Producer` says what {checkpoints} stands for."""

    run: str

    logs: str = "logs"
    tables: str = "tables"
    figures: str = "figures"
    record: str = "config.yaml"
    progress: str = "progress.json"
    report: str = "report.html"
    changes: str = "changes.patch"
    explorer: str = "explorer.html"
    tokens: str = "corpus/tokens.safetensors"
    corpus: str = "corpus/corpus.json"

    # What the user states in files, as tables of the run.
    schedule: str = "schedules/{model}.parquet"
    user_metrics: str = "metrics/tables.parquet"

    # Training: one file for each checkpoint, whatever one job trains. A job that trains a whole model writes the whole log.
    checkpoint: str = "checkpoints/{model}/{checkpoints}.safetensors"
    optimiser: str = "optimisers/{model}/{checkpoints}.safetensors"
    sketch: str = "sketches/{model}/{checkpoints}.safetensors"
    training_log: str = "training/{model}/{checkpoints}.parquet"
    model_log: str = "training/{model}.parquet"
    training_metrics: str = "metrics/training/{model}/{checkpoints}.parquet"
    curve_metrics: str = "metrics/curves/{model}.parquet"

    # Published checkpoints: what the repository has, the files of a checkpoint, and what was noted when they were fetched.
    revisions: str = "checkpoints/{model}/revisions.json"
    fetched: str = "checkpoints/{model}/{checkpoints}"
    manifest: str = "checkpoints/{model}/{checkpoints}.json"

    # Measurements.
    features: str = "features/{source}/{model}/{checkpoints}.parquet"
    diagrams: str = "diagrams/{source}/{model}/{checkpoints}.parquet"
    distances: str = "distances/{model}.parquet"
    trajectory_features: str = "features/trajectory/{model}.parquet"
    clouds: str = "clouds/{model}/{checkpoints}.safetensors"
    embedding_metrics: str = "metrics/embeddings/{model}/{checkpoints}.parquet"
    surfaces: str = "landscape/surfaces/{model}/{checkpoints}.parquet"
    densities: str = "landscape/densities/{model}/{checkpoints}.parquet"
    profiles: str = "landscape/profiles/{model}/{checkpoints}.parquet"
    path_surfaces: str = "landscape/path_surfaces/{model}.parquet"
    path_profiles: str = "landscape/path_profiles/{model}.parquet"
    trajectories: str = "landscape/trajectories/{model}.parquet"

    @classmethod
    def of(cls, name: str) -> "Paths":
        """Return the patterns of the run of a name, relative to the working directory."""
        run = f"results/{name}"
        return cls(run, **{field.name: f"{run}/{field.default}" for field in fields(cls) if field.name != "run"})

    def table(self, name: str) -> str:
        """Return the Parquet file of a table."""
        return f"{self.tables}/{name}.parquet"

    def csv(self, name: str) -> str:
        """Return the CSV file of a table."""
        return f"{self.tables}/{name}.csv"


def files_of_models(pattern: str, models: Iterable[str]) -> list[str]:
    """Return the file of each model."""
    return [pattern.format(model=model) for model in models]


def page_files(page: str) -> list[str]:
    """Return the files of a page beside the library's code: a template, style sheets and scripts."""
    folder = LIBRARY / "toposcale" / "pages"
    return [str(path) for name in ("base", page) for path in sorted(folder.glob(f"{name}.*")) if path.suffix != ".py"]
