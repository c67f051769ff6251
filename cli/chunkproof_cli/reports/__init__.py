"""Reports: each kind is described once in blocks (`*_blocks.py`), and each medium renders them (`to_*.py`)."""
