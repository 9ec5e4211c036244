"""A hook of MkDocs (mkdocs.yml) that adds the files outside docs/ that its pages link to.

Pages can be read in the repository, so they link to files by relative paths. On the site

- README.md, in both languages, CONTRIBUTING.md and CHANGELOG.md are pages of their own;
- a notebook is a page with its committed outputs;
- a source file is a page that shows it, and a folder one that lists its files.

Links are rewritten to these pages, and MkDocs checks them like all others. A link to a path that does not
exist is a warning; `mkdocs build --strict` treats it as an error.

Whoever publishes the site sets its address in FASTGEMM_SITE_URL. Pages then have a selector of the versions
that mike keeps (`mike deploy --push --update-aliases 0.1 latest`). The address of the repository comes from
pyproject.toml.
"""

from __future__ import annotations

import logging
import os
import posixpath
import re
import sys
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tools"))
from long_description import repository  # noqa: E402

DOCS = "docs/"
PAGES = {
    "README.md": "readme.md",
    "README.zh-CN.md": "readme.zh.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
}
LANGUAGES = {
    **dict.fromkeys((".h", ".cpp", ".cu", ".cuh"), "cpp"),
    **{".py": "python", ".sh": "bash", ".cmake": "cmake", ".toml": "toml", ".json": "json", ".yml": "yaml"},
}
LINK = re.compile(r"(?P<open>\]\()(?P<path>[^)\s#:]+)(?P<anchor>#[^)\s]*)?(?P<close>\))")
FENCE = re.compile(r"^(```|~~~).*?^\1", re.MULTILINE | re.DOTALL)
HEADING = re.compile(r"^# .*$", re.MULTILINE)

PANDAS_STYLE = re.compile(r"<style scoped>.*?</style>\n?", re.DOTALL)
PANDAS_TABLE = '<table border="1" class="dataframe">'

log = logging.getLogger("mkdocs.hooks.docs_site")


def page_of(path: str) -> str | None:
    """The page of the site that shows this file or folder of the repository; None if no page does."""
    if path in PAGES:
        return PAGES[path]
    if path.startswith(DOCS):
        return path.removeprefix(DOCS)
    here = ROOT / path
    if here.is_dir():
        return f"source/{path}/index.md"
    if here.suffix == ".ipynb":
        return str(Path(path).with_suffix(".md"))
    return f"source/{path}.md" if here.is_file() else None


def path_of(page: str) -> str:
    """The path in the repository to which the links of a page are relative."""
    for path, name in PAGES.items():
        if name == page:
            return path
    if page.startswith("source/"):
        path = page.removeprefix("source/")
        return path if path.endswith("/index.md") else path.removesuffix(".md")
    return page if page.startswith("notebooks/") else DOCS + page


def linked(markdown: str, path: str) -> list[tuple[re.Match[str], str]]:
    """The relative links of a page, each with its target path in the repository."""
    code = [found.span() for found in FENCE.finditer(markdown)]
    return [
        (link, posixpath.normpath(posixpath.join(posixpath.dirname(path), link["path"])))
        for link in LINK.finditer(markdown)
        if not any(start <= link.start() < end for start, end in code)
    ]


def source_page(path: str) -> str:
    """A page that shows a source file, or lists a folder."""
    here = ROOT / path
    hidden = "---\nsearch:\n  exclude: true\n---\n"
    if here.is_dir():
        inside = sorted(here.iterdir(), key=lambda each: (each.is_file(), each.name))
        shown = [each for each in inside if each.is_dir() or each.suffix in LANGUAGES]
        names = [f"- [{each.name}{'/' if each.is_dir() else ''}]({each.name})" for each in shown]
        return f"{hidden}# {path}\n\n" + "\n".join(names) + "\n"
    text = here.read_text(encoding="utf-8")
    return f"{hidden}# {path}\n\n~~~~{LANGUAGES.get(here.suffix, 'text')}\n{text}~~~~\n"


def notebook_files(path: Path, config: MkDocsConfig) -> list[File]:
    """The page of a notebook and the pictures in its outputs."""
    from nbconvert import MarkdownExporter

    name = f"notebooks/{path.stem}"
    text, resources = MarkdownExporter().from_filename(
        str(path), resources={"output_files_dir": f"{path.stem}_files", "unique_key": path.stem}
    )
    pictures = resources["outputs"].items()
    text = PANDAS_STYLE.sub("", text).replace(PANDAS_TABLE, "<table>")  # in the style of the site's tables
    text = text.replace("<details>", "<details markdown>")  # its content is Markdown, as in Jupyter
    return [
        File.generated(config, f"{name}.md", content=text),
        *(File.generated(config, f"notebooks/{picture}", content=data) for picture, data in pictures),
    ]


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Called by MkDocs first: the addresses of the site and of the repository."""
    config.site_url = os.environ.get("FASTGEMM_SITE_URL") or config.site_url
    config.repo_url = repository() or config.repo_url
    if config.site_url:
        config.extra["version"] = {"provider": "mike"}
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    for path, page in PAGES.items():
        files.append(File.generated(config, page, content=(ROOT / path).read_text(encoding="utf-8")))
    for notebook in sorted((ROOT / "notebooks").glob("*.ipynb")):
        for file in notebook_files(notebook, config):
            files.append(file)
    waiting = [file for file in files.documentation_pages() if not file.src_uri.startswith("source/")]
    while waiting:
        file = waiting.pop()
        for _, path in linked(file.content_string, path_of(file.src_uri)):
            page = page_of(path)
            if page and page.startswith("source/") and page not in files.src_uris:
                new = File.generated(config, page, content=source_page(path))
                files.append(new)
                waiting.append(new)
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    here = page.file.src_uri
    parts, end = [], 0
    for link, path in linked(markdown, path_of(here)):
        if path in files.src_uris:  # a picture of a notebook: the link is already correct
            continue
        target = page_of(path)
        if target is None:
            log.warning("%s links to %s, which does not exist", path_of(here), path)
            continue
        relative = posixpath.relpath(target, posixpath.dirname(here) or ".")
        parts += [markdown[end : link.start()], link["open"], relative, link["anchor"] or "", link["close"]]
        end = link.end()
    return "".join([*parts, markdown[end:]])


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> str:
    """Marks pages in Chinese as Chinese, for browsers that hyphenate, translate or read aloud."""
    return (
        output.replace('<html lang="en"', '<html lang="zh"', 1)
        if page.file.src_uri.endswith(".zh.md")
        else output
    )
