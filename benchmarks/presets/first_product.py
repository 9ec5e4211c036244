"""Measures one-time costs: the import of fastgemm, and its first product after torch's first one on a device.

Every row is the median over fresh processes that had already imported torch and created its context.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile

import first_calls
from contests import Preset, Settings
from fastgemm.bench import Summary
from fastgemm.bench.records import Measurement, Report
from studies.environment import describe

PROCESSES = 3


def measure(settings: Settings) -> Report:
    processes = min(PROCESSES, settings.most or PROCESSES)
    method = {"size": first_calls.SIZE, "processes": processes}
    runs = []
    with tempfile.TemporaryDirectory() as cache:  # holds Python's compiled modules, as pip does
        environment = os.environ | {"PYTHONPYCACHEPREFIX": cache, "PYTHONDONTWRITEBYTECODE": ""}
        for i in range(processes + 1):  # the first process fills the caches
            settings.progress("first_product", i / (processes + 1))
            command = [sys.executable, first_calls.__file__, settings.device]
            done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
            runs.append(json.loads(done.stdout.splitlines()[-1]))
    report = Report("first_product", describe(settings.device), method)
    for name in runs[0]:
        seconds = Summary.of([run[name] for run in runs[1:]])
        report.results.append(Measurement(op="step", kernel=name, seconds=seconds))
    settings.say(report.results)
    return report


PRESETS = {"first_product": Preset({"cuda": 25, "cpu": 20}, measure)}
