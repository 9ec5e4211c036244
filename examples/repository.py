"""Makes tools/ and benchmarks/ of this repository importable: ``render`` there makes the tables of reports, and
``studies`` has clocks."""

import sys
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
sys.path += [str(REPOSITORY / "tools"), str(REPOSITORY / "benchmarks")]
