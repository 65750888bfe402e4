"""Turns: in which order published checkpoints enter the bounded cache, and what each of them is fetched for."""

import hashlib
import json
from pathlib import Path

from fingerprint import fingerprint
from inputs import Inputs
from plan import span_of

MEASURED_BY = {"weights": "weight_features.py", "embeddings": "embeddings.py", "landscape": "loss_landscape.py"}
"""The script that measures the checkpoints of a source."""


class Turns:
    """The turns of the published checkpoints, {model}/{span}, of a run.

    purposes: what each is needed for. to_fetch: those that must be fetched for it. in_turn: all that need room in the
    cache, in the order in which they get it.
    """

    def __init__(self, inputs: Inputs) -> None:
        self.inputs, self.plan, self.paths = inputs, inputs.plan, inputs.paths
        self.hub = self.plan.config["hub"]
        self.purposes = {
            f"{model}/{span_of(step)}": self._purpose(model, step)
            for model in self.plan.published
            for step in self.plan.models[model].steps
        }
        self.to_fetch = [checkpoint for checkpoint in self.purposes if self._is_due(checkpoint)]
        others = [checkpoint for checkpoint in self.purposes if checkpoint not in self.to_fetch]
        self.in_turn = [checkpoint for checkpoint in others if self._is_unfinished(checkpoint)] + self.to_fetch

    def room_for(self, checkpoint: str, cores: int) -> list[str]:
        """Return what must have left the cache before a checkpoint is fetched, so that it holds at most `hub.resident`."""
        if self.hub["keep"]:
            return []
        index = self.in_turn.index(checkpoint) - (self.hub["resident"] or cores + 1)
        return [str(_file(self.paths.released, self.in_turn[index]))] if index >= 0 else []

    def _purpose(self, model: str, step: int) -> list[str]:
        """Return what a checkpoint is fetched for, as fingerprints: of where it is from, and of what measures it."""
        settings = self.plan.models[model].settings
        fetched = [settings["repo"], settings.get("revisions"), self.hub["duplicates"], fingerprint("fetch.py")]
        fetched.append(self.inputs.noted(model, span_of(step)).get("damaged", 0))
        sources = [source for source in MEASURED_BY if step in self.plan.work[source].steps.get(model, ())]
        measured = [(source, self.plan.settings[source], fingerprint(MEASURED_BY[source])) for source in sources]
        measured += [self.plan.config["corpus"]] * (sources != ["weights"])
        texts = [json.dumps(facts, sort_keys=True, default=str).encode() for facts in (fetched, measured)]
        return [hashlib.sha256(text).hexdigest()[:16] for text in texts]

    def _is_due(self, checkpoint: str) -> bool:
        """Return whether a checkpoint must be fetched: from another source or, if it was removed, for another purpose."""
        manifest, turn = _file(self.paths.manifest, checkpoint), _file(self.paths.turn, checkpoint)
        purpose = self.purposes[checkpoint]
        # `--touch` leaves an empty file.
        noted = (turn.read_text(encoding="utf-8").split() or purpose) if turn.exists() else []
        if self.hub["keep"] or manifest.exists():
            return noted[:1] != purpose[:1]
        return noted != purpose

    def _is_unfinished(self, checkpoint: str) -> bool:
        """Return whether a checkpoint whose turn has come was not fetched yet, or is still in the cache."""
        patterns = (self.paths.manifest, self.paths.size, self.paths.turn)
        manifest, size, turn = (_file(pattern, checkpoint) for pattern in patterns)
        return manifest.exists() or not size.exists() or size.stat().st_mtime < turn.stat().st_mtime


def _file(pattern: str, checkpoint: str) -> Path:
    """Return the file of a published checkpoint, {model}/{span}."""
    return Path(pattern.replace("{model}/{span}", checkpoint))
