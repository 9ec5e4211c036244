"""The ``fastgemm`` command and its subcommands."""

from __future__ import annotations

import contextlib
import errno
import os
import sys
from typing import Any

import click

from .. import __version__
from .bench import bench
from .explain import explain
from .info import info
from .ladder import ladder
from .tune import tune

# The errors of an output that cannot be written: the disk is full, the quota is used up, the file has reached its
# limit (ulimit -f), no process reads the pipe, the device failed, or the file was closed.
_OF_OUTPUT = errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EPIPE, errno.EIO, errno.EBADF


class _Commands(click.Group):
    def main(self, *arguments: Any, **options: Any) -> Any:
        """An ordinary group, but with exit code 1 and a message if standard output cannot be written."""
        if hasattr(sys.stdout, "reconfigure"):
            sys.stdout.reconfigure(errors="backslashreplace")  # the name of a file need not be text
        try:
            try:
                return super().main(*arguments, **options)
            finally:
                if sys.stdout is not None:  # it may have been closed before the program began
                    sys.stdout.flush()
        except OSError as error:
            if error.filename is not None or error.errno not in _OF_OUTPUT:
                raise
            _discard_output()
            if error.errno != errno.EPIPE:  # the reader of a pipe has seen enough
                click.echo(f"Error: cannot write stdout: {error.strerror or error}", err=True)
            sys.exit(1)


def _discard_output() -> None:
    """Discards output that cannot be written; otherwise the interpreter would try again at its end."""
    with contextlib.suppress(OSError, ValueError), open(os.devnull, "wb") as nowhere:
        os.dup2(nowhere.fileno(), sys.stdout.fileno())


@click.group(
    cls=_Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110}
)
@click.version_option(__version__, prog_name="fastgemm")
def main() -> None:
    """GEMM and transpose as a ladder of optimization levels.

    Exit codes: 0 fine, 1 a result was wrong or the run failed, 2 usage.
    """


main.add_command(ladder)
main.add_command(bench)
main.add_command(explain)
main.add_command(info)
main.add_command(tune)
