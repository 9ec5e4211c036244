"""``import torch`` calls this module at its end (entry point group ``torch.backends``), so that
``FASTGEMM_PATCH=1`` patches programs that do not import fastgemm. It is outside the package, whose import takes
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
    """Imports fastgemm, whose import reads the variable. Returns the reason if this is impossible.

    Python finds a file ``fastgemm.py`` beside the program first. This function neither imports that file, which
    would run it, nor replaces it by the package, because the program may need it."""
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
