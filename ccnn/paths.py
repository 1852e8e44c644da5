"""Where the repository lies: nets, solvers, models and data are found from here."""
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
