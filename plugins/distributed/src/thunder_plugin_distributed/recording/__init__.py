"""How collectives are recorded. This package counts as Thunder's: what its code reads is not guarded."""
