"""An executor that runs attention and normalizations with cuDNN's graph API."""
