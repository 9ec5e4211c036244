"""Runs every command line that README, CONTRIBUTING, docs/, notebooks and examples/ show, but with small problems,
short samples, and only the first problem of a preset. Commands of benchmarks/ are only
parsed."""

import json
import re
import shlex
from pathlib import Path

import accuracy
import fastgemm
import pytest
import run as measuring
import torch
from click.testing import CliRunner
from fastgemm.cli import main
from pages import PAGES, ROOT, snippets

SHOWN_IN = [
    *PAGES,
    *(ROOT / "SECURITY.md", ROOT / "examples" / "README.md"),
    *sorted((ROOT / ".github").rglob("*.md")),
    *sorted((ROOT / "notebooks").glob("*.ipynb")),
]
PREFIX = r"(?:\.venv/bin/)?fastgemm "
OF_BENCHMARKS = r"(?:\.venv/bin/)?python benchmarks/(?=(?:run|accuracy)\.py)"
# Replacements for kernels that a reader is told to write, and for words to fill in.
TO_FILL_IN = {
    "blocked_twice": "blocked",
    "tiled_wide": "tiled",
    "mine": "naive",
    "name": "naive",
    "LEVEL": "2",
}
# Takes minutes on a GPU, so it is parsed but not run.
LONG = [["tune"]]
# Messages of commands without a GPU, if the page shows a run with a GPU.
NEEDS_GPU = re.compile(r"on a GPU|none can be used here|is a kernel of \w+ on cuda")
SIZE = 128  # larger sizes are reduced to this
# The command that measured a figure, at the commit beside it.
MEASURED_BY = re.compile(r"(?:(?<=, by )|(?<=命令\W))`[^`\n]+`|`[^`\n]+`(?= \(commit )")


def text_of(path: Path) -> str:
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".ipynb":
        text = "\n".join("".join(cell["source"]) for cell in json.loads(text)["cells"])
    return MEASURED_BY.sub("", text)


def commands_in(text: str, prefix: str = PREFIX) -> set[str]:
    """Lines of code blocks and cells, and texts between backticks."""
    blocks = "\n".join(snippets(text, "(?:sh|text)?"))
    lines = re.findall(rf"^ *(?:\$ )?{prefix}(\w.*)$", blocks, re.M) + re.findall(
        rf"^!{prefix}(.*)$", text, re.M
    )
    inline = re.findall(rf"`{prefix}([^`]+)`", text)
    return {shlex.join(shlex.split(found, comments=True)) for found in (*lines, *inline)}


COMMANDS = sorted(set().union(*(commands_in(text_of(path)) for path in SHOWN_IN)))
MEASURING = sorted(set().union(*(commands_in(text_of(path), OF_BENCHMARKS) for path in SHOWN_IN)))


def quick(command: str) -> list[str]:
    """The words of a command, with small sizes and existing kernels."""
    words = [
        str(min(SIZE, int(word)))
        if word.isdecimal()
        else re.sub(r"(?<=x)\d{3,}|\d{3,}(?=x)", str(SIZE), word)
        for word in shlex.split(command)
    ]
    words = [TO_FILL_IN.get(word, word) for word in words]
    if words == ["explain"]:  # only the command's name, without arguments
        return ["explain", "--help"]
    return [*words, "--shape", "64"] if words[0] == "explain" and "--shape" not in words else words


@pytest.mark.parametrize("command", MEASURING)
def test_commands_of_benchmarks_are_understood(command):
    program, *words = shlex.split(command)
    main = {"run.py": measuring.main, "accuracy.py": accuracy.main}[program]
    if "NAME" not in words:  # stands for any preset
        main.make_context(program, words)


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Runs a command in an empty folder, on at most one problem and for the shortest time."""
    from fastgemm.cli import bench, ladder

    sweep, climb = bench.run_sweep, ladder.run_ladder

    def least(cases, **options):
        return sweep([min(cases, key=lambda case: case.problem.work)], **{**options, "budget": 0.001})

    def short(problems, **options):
        small = [type(p)(*(64 for _ in p.shape), dtype=p.dtype) for p in problems]
        return climb(small, **{**options, "budget": 0.001})

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(bench, "run_sweep", least)
    monkeypatch.setattr(ladder, "run_ladder", short)
    monkeypatch.setattr("fastgemm.cli.options.best_device", lambda: "cpu")
    threads = torch.get_num_threads()
    yield lambda words: CliRunner().invoke(main, words)
    torch.set_num_threads(threads)
    fastgemm.tuning.clear_cache(disk=True)  # the results of --tune would change choices in other tests


def test_commands_are_found():
    assert len(COMMANDS) > 25
    text = "`fastgemm bench --op add\n--shape 8`, `fastgemm.bench`\n```sh\n$ fastgemm info   # all\n```\n"
    assert commands_in(text) == {"bench --op add --shape 8", "info"}
    assert {command.split()[0] for command in COMMANDS} == set(main.commands)
    assert {command.split()[0] for command in MEASURING} == {"run.py", "accuracy.py"}


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_no_command_stands_twice_in_a_block_or_has_a_word_to_guess(path):
    for block in snippets(path.read_text(encoding="utf-8"), "sh"):
        lines = [line.partition(" #")[0].strip() for line in block.splitlines()]
        commands = [line for line in lines if line and not line.startswith("#")]
        assert sorted(set(commands)) == sorted(commands)
        assert not re.search(r"git clone (?!https?://|git@)", block)


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_shown_run(command, run):
    words = quick(command)
    if any(words[: len(start)] == start for start in LONG):
        main.commands[words[0]].make_context(words[0], words[1:])
        return
    result = run(words)
    if result.exit_code == 0:
        return
    assert NEEDS_GPU.search(result.stderr), result.output + repr(result.exception)
    assert "usage" not in result.stderr.lower() or result.exit_code == 2
