"""Lets every test import the modules that lie in tests/ itself: ``from graph_table import GRAPHS``."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
