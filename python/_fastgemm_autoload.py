"""``import torch`` calls this at its end, by the entry point group ``torch.backends``: ``FASTGEMM_PATCH=1``
patches programs that do not import fastgemm. It is not in the package, because importing the package takes
time."""

import os


def load() -> None:
    if os.environ.get("FASTGEMM_PATCH", "0") in ("", "0"):
        return
    try:
        obstacle = _import_the_package()
    except Exception as error:  # torch would fail to be imported
        obstacle = f"fastgemm cannot be imported: {error}"
    if obstacle is not None:
        import warnings

        warnings.warn(f"FASTGEMM_PATCH is set, but {obstacle}", stacklevel=2)


def _import_the_package() -> str | None:
    """Imports fastgemm, which looks at the variable itself; one that is being imported looks, too. Says why not.

    A program may have a file of that name beside it, which Python finds first. To import that would run it, and to
    put the package in its place would take it from the program: neither is done.
    """
    from importlib.util import find_spec
    from pathlib import Path

    spec = find_spec("fastgemm")
    folders = getattr(spec, "submodule_search_locations", None) or ()
    if any(Path(folder, "_drop_in").exists() for folder in folders):
        import fastgemm  # noqa: F401

        return None
    if spec is None:
        return "fastgemm cannot be imported: there is no module of that name"
    return (
        f"`import fastgemm` finds {spec.origin or ', '.join(folders)}, which is not the package "
        f"{Path(__file__).parent / 'fastgemm'}: products are torch's. Give that file another name"
    )
