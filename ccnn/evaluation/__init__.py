"""Scores as the paper counts them, their tables and figures, and the search for CRF parameters."""
from ccnn.evaluation.scores import Score, confusions, scored

__all__ = ["Score", "confusions", "scored"]
