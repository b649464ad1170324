"""An executor that compiles regions of Thunder's traces with nvFuser."""
