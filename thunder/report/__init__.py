"""Reports of compilations, as data: what `thunder.explain` returns, from the cache entries of a program."""
