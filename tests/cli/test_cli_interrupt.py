"""Tests that Ctrl-C ends every command that measures for a long time."""

import pytest
from interrupts import interrupted

PROGRAM = """
import signal
from fastgemm.cli import main
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's job in the background ignores it
print("ready", flush=True)
main(%r.split())
"""
# These commands run much longer than the signal needs to arrive. If Python were already ending, the signal would
# end it without a message.
LONG = {
    "bench": "bench --shape 4096 --dtype int64 --dtype int32 --tune --budget 60 --device cpu",
    "ladder": "ladder --size 4096 --device cpu",
    "explain": "explain gemm --shape 8192 --kernel naive --compare naive_uncoalesced",
}


@pytest.mark.parametrize("name", LONG)
def test_ctrl_c_ends_a_command(name, tmp_path):
    code, errors = interrupted(PROGRAM % LONG[name], cwd=tmp_path, FASTGEMM_CACHE_DIR=str(tmp_path))
    assert code == 1 and errors.endswith("Aborted!\n"), (code, errors)
