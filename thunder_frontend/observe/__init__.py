"""Guards: what a program read from Python when it was recorded, and the prologue that checks it."""
