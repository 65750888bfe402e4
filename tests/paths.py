"""Where the project is, for tests."""

from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
