"""The ``fastgemm`` command and its subcommands."""

from __future__ import annotations

import click

from .. import __version__
from .bench import bench
from .explain import explain
from .info import info
from .ladder import ladder


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(__version__, prog_name="fastgemm")
def main() -> None:
    """GEMM and transpose as a ladder of optimization levels.

    Exit codes: 0 fine, 1 a result was wrong or the run failed, 2 usage.
    """


main.add_command(ladder)
main.add_command(bench)
main.add_command(explain)
main.add_command(info)
