"""Recording of TorchScript functions that compiled programs call. Names are imported when such a call is recorded."""
