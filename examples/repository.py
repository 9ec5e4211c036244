"""Makes tools/ of this repository importable: ``render`` there makes the tables of reports."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parent.parent / "tools"))
