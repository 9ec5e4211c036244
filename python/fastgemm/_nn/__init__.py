"""The layers of :mod:`fastgemm.nn`, and the code that puts them into a model."""
