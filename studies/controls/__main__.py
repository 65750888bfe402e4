"""`python -m studies.controls TABLES WORK RUN IMAGES` computes every number and figure of the controls.

`make controls` trains what is missing (`studies.controls.train`) and calls it; studies/controls/README.md says what is
asked. WORK and RUN: weights of the replication, and the default run; tables that need them stay as they are without.
"""

from __future__ import annotations

import sys
from pathlib import Path

from studies.controls import picture, planted, pooling, replication, scale, settings


def main(folder: Path, work: Path, run: Path, images: Path) -> None:
    """Write every table, and the figures of docs/research.md."""
    pooling.main(folder)
    replication.main(folder)
    settings.main(folder)
    scale.main(folder, run)
    planted.main(folder, work, run)
    picture.main(folder, images)


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:5]))
