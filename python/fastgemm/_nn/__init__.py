"""The layers of :mod:`fastgemm.nn`, and how a model gets them."""
