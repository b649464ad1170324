"""Thunder's core: acquisition, traces, guards, passes and the runtime."""
