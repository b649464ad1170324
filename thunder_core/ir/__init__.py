"""The intermediate representation: proxies, symbols and traces; their printer, verifier and compilation to Python."""
