"""Reports of compilations, as data."""
