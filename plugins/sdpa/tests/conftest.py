"""Makes ``attention_cases`` importable: pytest's import mode leaves the folder of tests out."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
