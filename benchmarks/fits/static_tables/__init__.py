"""The tables that ``level=None`` reads, from measurements to C++: make_static_tables.py is the command.

grid          the problems that are measured
series        timing every kernel that may be the fastest there
generate      which kernel a point names, and the C++ source
"""
