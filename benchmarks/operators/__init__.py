"""Single operators at sizes of language models: time, share of the machine's limit, error, and claims."""
