"""The intermediate representation: proxies, symbols, traces, and how they are printed, checked and run."""
