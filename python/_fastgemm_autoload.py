"""What ``import torch`` calls at its end, by the entry point group ``torch.backends``: with ``FASTGEMM_PATCH=1``
programs that do not import fastgemm are patched. Outside of the package, whose import is not for nothing."""

import os
import sys


def load() -> None:
    if os.environ.get("FASTGEMM_PATCH", "0") in ("", "0") or "fastgemm" in sys.modules:
        return  # a fastgemm that is being imported looks itself
    try:
        import fastgemm  # noqa: F401  which looks at the variable, too
    except Exception as error:  # torch would fail to be imported
        import warnings

        warnings.warn(f"FASTGEMM_PATCH is set, but fastgemm cannot be imported: {error}", stacklevel=2)
