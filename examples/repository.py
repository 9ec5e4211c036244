"""Makes tools/ and benchmarks/ of this repository importable: their ``render`` makes the tables of reports, and
their ``studies`` has timers."""

import sys
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
sys.path += [str(REPOSITORY / "tools"), str(REPOSITORY / "benchmarks")]
