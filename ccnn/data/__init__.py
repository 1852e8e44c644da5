"""Data sets and training samples: sample t is a pure function of the settings and t."""
from ccnn.data.dataset import DataSet

__all__ = ["DataSet"]
