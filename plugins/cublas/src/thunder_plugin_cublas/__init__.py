"""Matrix products by the fastest of cuBLASLt's algorithms, as an executor for Thunder."""
