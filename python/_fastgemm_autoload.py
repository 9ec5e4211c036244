"""What ``import torch`` calls at its end, by the entry point group ``torch.backends``: with ``FASTGEMM_PATCH=1``
programs that do not import fastgemm are patched. Outside of the package, whose import is not for nothing."""

import os


def load() -> None:
    if os.environ.get("FASTGEMM_PATCH", "0") in ("", "0"):
        return
    try:
        _import_the_package()
    except Exception as error:  # torch would fail to be imported
        _warn(f"fastgemm cannot be imported: {error}")


def _import_the_package() -> None:
    """Imports fastgemm, which looks at the variable itself; one that is being imported looks, too.

    A program may have a file of that name beside it, which Python finds first. To import that would run it, and to
    put the package in its place would take it from the program: neither is done.
    """
    from importlib.util import find_spec
    from pathlib import Path

    spec = find_spec("fastgemm")
    folders = getattr(spec, "submodule_search_locations", None) or ()
    if any(Path(folder, "_everywhere.py").exists() for folder in folders):
        import fastgemm  # noqa: F401
    elif spec is None:
        _warn("fastgemm cannot be imported: there is no module of that name")
    else:
        where = spec.origin or ", ".join(folders)
        _warn(
            f"`import fastgemm` finds {where}, which is not the package {Path(__file__).parent / 'fastgemm'}: "
            "products are torch's. Give that file another name"
        )


def _warn(what: str) -> None:
    import warnings

    warnings.warn(f"FASTGEMM_PATCH is set, but {what}", stacklevel=2)
