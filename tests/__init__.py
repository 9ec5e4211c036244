"""A package, so that pytest does not put tests/ on sys.path, where its folders would pass for packages."""
