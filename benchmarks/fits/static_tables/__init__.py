"""Makes the tables that ``level=None`` reads, from measurements to C++. The command is make_static_tables.py.

grid          the problems that are measured
series        times every kernel that may be the fastest there
generate      decides which kernel a point names, and writes the C++ source
"""
