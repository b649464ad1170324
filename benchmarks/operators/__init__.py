"""Single operators at the sizes of language models: time, share of the machine's limit, error, and who took them."""
