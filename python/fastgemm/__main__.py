"""``python -m fastgemm``."""

from .cli import main

main(prog_name="fastgemm")
