"""A folder of your own photographs: read it, check it, learn from it, report what was learned."""
from ccnn.project.folder import read_folder

__all__ = ["read_folder"]
